"""Defines the names of categories and phases of a step in all outputs: each has one name, one tone and one meaning.

`CATEGORIES` also has what a sentence says of a category, so that a sentence, a table and a figure cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from profiler.analyse.model import AFTER_OPTIMIZER, ELSEWHERE, UNATTRIBUTED, Stage


class CategoryText(NamedTuple):
    """The texts of a category of the host's time."""

    label: str
    """Its name in every table, figure and legend."""
    tone: str
    """Its colour."""
    meaning: str
    """What its time is spent on."""
    idle: str
    """Follows `61% of the time it was idle`."""
    step: str
    """Follows a share of the step: `61% of each step is spent on data loading`. The place comes last, or at
    `{place}`."""
    spent: str
    """Follows `32 ms of each of its steps rank 1 spends`."""


CATEGORIES: Final[Mapping[str, CategoryText]] = {
    "input": CategoryText(
        "data loading",
        "c1",
        "waiting for a batch, or making one; tokenization",
        "while the host loaded data",
        "is spent on data loading",
        "on data loading",
    ),
    "sync": CategoryText(
        "sync",
        "c2",
        "blocked until the device, or a worker, finished",
        "in and after syncs",
        "is spent blocked on the device",
        "blocked on the device",
    ),
    "copy": CategoryText(
        "copy",
        "c3",
        "in a copy call, not blocked",
        "in copy calls",
        "goes to copies between host and device",
        "in copies between host and device",
    ),
    "launch": CategoryText(
        "launch",
        "c4",
        "other calls toward the device",
        "in launch and allocation calls",
        "is spent in device calls",
        "in device calls",
    ),
    "framework": CategoryText(
        "framework",
        "c5",
        "torch's own Python, or its operators if a GPU does the work",
        "while the host launched operators",
        "is spent in the framework's own Python and in launching its operators",
        "in the framework's own Python and in launching its operators",
    ),
    "compute": CategoryText(
        "compute",
        "c6",
        "operators that are the work itself",
        "while the host computed",
        "is spent on computing",
        "on computing",
    ),
    "log": CategoryText("log", "c7", "logging", "while the host logged", "goes to logging", "on logging"),
    "checkpoint": CategoryText(
        "checkpoint",
        "c8",
        "writing checkpoints",
        "while the host wrote a checkpoint",
        "is spent on writing checkpoints",
        "on writing checkpoints",
    ),
    "python": CategoryText(
        "Python",
        "c10",
        "Python code, on a core and with the GIL",
        "while the host ran Python",
        "is spent in Python code",
        "in Python code",
    ),
    "gil": CategoryText(
        "GIL wait",
        "c11",
        "another thread held Python's global interpreter lock",
        "while the host waited for the GIL",
        "is spent waiting for the GIL{place}: another thread holds it",
        "waiting for the GIL",
    ),
    "ranks": CategoryText(
        "rank wait",
        "c12",
        "exchanging data with other ranks, or waiting for them",
        "while the host exchanged data with other ranks or waited for them",
        "is spent exchanging data with other ranks or waiting for them",
        "exchanging data with other ranks or waiting for them",
    ),
    "waiting": CategoryText(
        "other wait",
        "c13",
        "blocked in a sleep, on a lock or on a file, or for an unknown reason",
        "while the host waited for something else",
        "is spent on other waits",
        "on other waits",
    ),
    "core": CategoryText(
        "core wait",
        "c14",
        "could have run, but no core was free",
        "while there was no core to run on",
        "is spent waiting for a core",
        "waiting for a core",
    ),
    "throttled": CategoryText(
        "throttled",
        "c15",
        "could have run, but its group had used up its CPU quota",
        "while the host was throttled",
        "is lost to throttling: its group of processes had used up its CPU quota",
        "throttled",
    ),
    UNATTRIBUTED: CategoryText(
        "unknown",
        "c9",
        "neither records nor samples tell its category",
        "while it is unknown what the host did",
        "is spent on something unknown",
        "on something unknown",
    ),
}
"""The texts of every category of HOST_CATEGORIES; a test checks that none is missing."""
_ONLY_IN_FIGURES: Final[Mapping[str, tuple[str, str]]] = {
    "allocate": ("c16", "calls that allocate or free memory of the device"),
    "communication": ("c12", "between devices"),
    "idle": ("idle", "nothing to do"),
}
"""Tone and meaning of what is no category of a step of the host: of calls, and of the device."""
_OTHER_CATEGORY: Final = ("c8", "")
_DATA: Final = CATEGORIES["input"].label
PHASES: Final[Mapping[str, tuple[str, str]]] = {
    "data": (_DATA, "c1"),
    "forward": ("forward", "c6"),
    "backward": ("backward", "c4"),
    "optimizer": ("optimizer", "c5"),
    Stage.EVALUATION: ("evaluation", "c2"),
    Stage.ROLLOUT: ("roll-out", "c3"),
    Stage.NO_GRADIENTS: ("without gradients", "c8"),
    Stage.COMPILE: ("compile", "c7"),
    AFTER_OPTIMIZER: ("after optimizer", "c10"),
    ELSEWHERE: ("other code", "c11"),
}
"""Phase -> its name in all outputs, short enough to stand beside a bar in a terminal, and its tone."""


def category_tone(name: str) -> str:
    """The tone of a category of the host or the device in all figures; the same name has the same tone in both."""
    text = CATEGORIES.get(name)
    return text.tone if text is not None else _ONLY_IN_FIGURES.get(name, _OTHER_CATEGORY)[0]


def category_label(name: str) -> str:
    """The name of a category of the host or the device in all figures and tables."""
    text = CATEGORIES.get(name)
    return text.label if text is not None else name


def device_label(name: str) -> str:
    """The name of a category of the device where those of the host are shown too."""
    return f"device {name}"


def category_meaning(name: str) -> str:
    """What the time of a category is spent on; empty for one that a program names itself."""
    text = CATEGORIES.get(name)
    return text.meaning if text is not None else _ONLY_IN_FIGURES.get(name, _OTHER_CATEGORY)[1]


def phase_label(name: str) -> str:
    """The name of a phase of a step in all outputs."""
    return PHASES.get(name, (name, ""))[0]
