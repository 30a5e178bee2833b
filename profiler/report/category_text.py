"""Defines the names of categories and phases of a step in all outputs: each has one name, one tone and one meaning.

`CATEGORIES` also has what a sentence says of a category, so that a sentence, a table and a figure cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from profiler.analyse.model.device import COMMUNICATING, COPYING
from profiler.analyse.model.host import AFTER_OPTIMIZER, ELSEWHERE, UPDATE, Stage
from profiler.analyse.model.ledger import Owner
from profiler.analyse.model.measures import UNATTRIBUTED
from profiler.diagnose.model import (
    BETWEEN_OPERATORS,
    CODE_OF,
    DENORMAL_COMPUTING,
    IDLE,
    LAUNCHED_ONCE,
    OTHER_CODE,
    PYTHON_OR_WAITS,
    RECORDED_COMPUTING,
    SETUP_CALLS,
    SETUP_ONCE,
    SUBMITTED,
    WAITS_FOR_WORKERS,
)


class CategoryText(NamedTuple):
    """The texts of a category of the host's time."""

    label: str
    """Its name in every table, figure and legend."""
    tone: str
    """Its colour."""
    meaning: str
    """What its time is spent on."""
    idle: str
    """Follows `Idle time of the device`."""
    title: str
    """Begins a sentence such as `Data loading takes 61% of each step.`"""
    spent: str
    """Follows `32 ms of each of its steps rank 1 spends`."""


CATEGORIES: Final[Mapping[str, CategoryText]] = {
    "input": CategoryText("data loading", "c1", "waiting for a batch, or making one; tokenization",
        "while the host loaded data", "Data loading", "on data loading"),
    "sync": CategoryText("sync", "c2", "blocked until the device, or a worker, finished", "in and after syncs",
        "Waiting for the device", "blocked on the device"),
    "copy": CategoryText("copy", "c3", "in a copy call, not blocked", "in copy calls",
        "Copying between host and device", "in copies between host and device"),
    "launch": CategoryText("launch", "c4", "other calls toward the device", "in launch and allocation calls",
        "Calling the device", "in device calls"),
    "framework": CategoryText("framework", "c5", "torch's own Python, or its operators if a GPU does the work",
        "while the host launched operators", "Calling torch's operators",
        "in the framework's own Python and in launching its operators"),
    "compute": CategoryText("compute", "c6", "operators that do the computation", "while the host computed",
        "Computing", "on computing"),
    "log": CategoryText("log", "c7", "logging", "while the host logged", "Logging", "on logging"),
    "checkpoint": CategoryText("checkpoint", "c8", "writing checkpoints", "while the host wrote a checkpoint",
        "Writing checkpoints", "on writing checkpoints"),
    "python": CategoryText("Python", "c10", "Python code, on a core and with the GIL", "while the host ran Python",
        "Python code", "in Python code"),
    "gil": CategoryText("GIL wait", "c11", "another thread held Python's global interpreter lock",
        "while the host waited for the GIL", "Waiting for the GIL", "waiting for the GIL"),
    "ranks": CategoryText("rank wait", "c12", "exchanging data with other ranks, or waiting for them",
        "while the host exchanged data with other ranks or waited for them",
        "Communication between ranks, waits included,", "exchanging data with other ranks or waiting for them"),
    "waiting": CategoryText("other wait", "c13",
        "blocked in a sleep, on a lock or on a file, or for an unknown reason",
        "while the host waited for something else", "Waiting for something else", "on other waits"),
    "core": CategoryText("core wait", "c14", "could have run, but no core was free",
        "while there was no core to run on", "Waiting for a core", "waiting for a core"),
    "throttled": CategoryText("throttled", "c15", "could have run, but its group had used up its CPU quota",
        "while the host was throttled", "Throttling by the CPU quota", "throttled"),
    UNATTRIBUTED: CategoryText("unknown", "c9", "neither records nor samples tell its category",
        "while it is unknown what the host did", "Unknown work", "on something unknown"),
}  # fmt: skip
"""The texts of every category of HOST_CATEGORIES; a test checks that none is missing."""
_ONLY_IN_FIGURES: Final[Mapping[str, tuple[str, str]]] = {
    "allocate": ("c16", "calls that allocate or free memory of the device"),
    "communication": ("c12", "between devices"),
    "idle": ("idle", "nothing to do"),
}
"""Tone and meaning of what is no category of a step of the host: of calls, and of the device."""
_OTHER_TITLES: Final[Mapping[str, str]] = {
    Stage.EVALUATION: "Evaluation",
    Stage.ROLLOUT: "The roll-out",
    Stage.COMPILE: "Compilation by torch.compile",
    AFTER_OPTIMIZER: "Work after optimizer.step()",
    UPDATE: "optimizer.step()",
    COMMUNICATING: "Communication while no kernel computes",
    COPYING: "Copying while no kernel computes",
    BETWEEN_OPERATORS: "Python code, or waiting, between operators",
    PYTHON_OR_WAITS: "Python code, or waiting for the device in it,",
    RECORDED_COMPUTING: "Backward passes and optimizer updates",
    DENORMAL_COMPUTING: "Computing, also with denormal numbers,",
    WAITS_FOR_WORKERS: "Waiting for worker processes, whose stacks show what they do,",
}
"""Titles of time that no rule explains, where it is no category of the host."""
CODE_TITLES: Final[Mapping[str, str]] = {
    CODE_OF[Owner.IMPORT]: "Importing {package}",
    CODE_OF[Owner.LIBRARY]: "Code of {package}",
    CODE_OF[Owner.PYTHON]: "Code of Python's standard library",
    CODE_OF[Owner.TORCH]: "Code of torch",
    CODE_OF[Owner.USER]: "The program's own code",
    OTHER_CODE: "Other code",
}
"""Titles of what took a part of a run, where whose code it was tells more than its kind."""
_OTHER_IDLE: Final[Mapping[str, str]] = {
    BETWEEN_OPERATORS: "while the host ran no operator and made no call: in Python code, or waiting,",
    SETUP_CALLS: "while the host was in calls that allocate or free memory or set the device up",
    SETUP_ONCE: "that occurs once, in calls that allocate or free memory or set the device up,",
    LAUNCHED_ONCE: "that occurs once, while the host launched operators,",
    SUBMITTED: "although the host had submitted its next work",
}
"""What the host did while the device was idle, where the category alone would tell too little."""
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
    """Return the tone of a category of the host or the device, which is the same in all figures."""
    text = CATEGORIES.get(name)
    return text.tone if text is not None else _ONLY_IN_FIGURES.get(name, _OTHER_CATEGORY)[0]


def category_label(name: str) -> str:
    """Return the name of a category of the host or the device in all figures and tables."""
    text = CATEGORIES.get(name)
    return text.label if text is not None else name


def device_label(name: str) -> str:
    """Return the name of a category of the device where those of the host are shown too."""
    return f"device {name}"


def category_meaning(name: str) -> str:
    """Tell what the time of a category is spent on; empty for one that a program names itself."""
    text = CATEGORIES.get(name)
    return text.meaning if text is not None else _ONLY_IN_FIGURES.get(name, _OTHER_CATEGORY)[1]


def rest_title(name: str, values: Mapping[str, Any]) -> str:
    """Tell what begins a sentence about time that no rule explains: `Data loading`, before `takes 61% of each step`."""
    if name in CODE_TITLES:
        return CODE_TITLES[name].format(package=values["package"])
    if name.startswith(IDLE):
        name = name.removeprefix(IDLE)
        return f"Idle time of the device {_OTHER_IDLE.get(name) or CATEGORIES[name].idle}"
    return CATEGORIES[name].title if name in CATEGORIES else _OTHER_TITLES[name]


def phase_label(name: str) -> str:
    """Return the name of a phase of a step in all outputs."""
    return PHASES.get(name, (name, ""))[0]


STAGES: Final[Mapping[str, str]] = {
    Stage.EVALUATION: "evaluation",
    Stage.ROLLOUT: "the roll-out",
    Stage.NO_GRADIENTS: "work without gradients",
    Stage.COMPILE: "compilation by torch.compile",
    Stage.CHECKPOINT: "writing checkpoints",
    "loader start": "the start of a loader",
    "garbage collection": "garbage collection",
}
"""Stage of the program, or region, that recorded times show -> its name in a sentence."""
