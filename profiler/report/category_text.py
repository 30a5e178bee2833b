"""The names, the meanings and the tones of the categories of a step and of its phases, in all figures and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CATEGORIES: Final[Mapping[str, tuple[str, str]]] = {
    "input": ("c1", "waiting for data, tokenization"),
    "sync": ("c2", "blocked until the device, or a worker, finished"),
    "copy": ("c3", "in a copy call, not blocked"),
    "launch": ("c4", "other calls toward the device"),
    "allocate": ("c16", "calls that allocate or free memory of the device"),
    "framework": ("c5", "torch's own Python, or its operators if a GPU does the work"),
    "compute": ("c6", "operators that are the work itself"),
    "log": ("c7", "logging"),
    "checkpoint": ("c8", "writing checkpoints"),
    "python": ("c10", "Python code of the program, on a core and with the GIL"),
    "gil": ("c11", "another thread held Python's global interpreter lock"),
    "ranks": ("c12", "exchanging data with other ranks, or waiting for them"),
    "waiting": ("c13", "blocked: in a sleep, on a lock, on a file, or for what is not known"),
    "core": ("c14", "could have run, but no core was free"),
    "throttled": ("c15", "could have run, but its group had used up its CPU quota"),
    "unattributed": ("c9", "nothing was recorded"),
    "communication": ("c12", "between devices"),
    "idle": ("idle", "nothing to do"),
}
"""Tone and meaning of the host's and the device's categories; the same name has the same tone in both."""
_LABELS: Final[Mapping[str, str]] = {"gil": "GIL wait", "ranks": "rank wait", "core": "core wait"}
"""The label of a category whose name alone does not say what it is."""
_OTHER_CATEGORY: Final = ("c8", "")
PHASES: Final[Mapping[str, tuple[str, str]]] = {
    "data": ("data", "c1"),
    "forward": ("forward", "c6"),
    "backward": ("backward", "c4"),
    "optimizer": ("optimizer", "c5"),
    "evaluation": ("evaluation", "c2"),
    "roll-out": ("roll-out", "c3"),
    "without gradients": ("no gradients", "c8"),
    "compile": ("compile", "c7"),
    "after the optimizer": ("after step", "c10"),
    "elsewhere": ("elsewhere", "idle"),
}
"""Phase -> a name short enough to stand beside a bar in a terminal, and its tone."""


def category_tone(name: str) -> str:
    """The tone of a category of the host or the device in all figures."""
    return _CATEGORIES.get(name, _OTHER_CATEGORY)[0]


def category_label(name: str) -> str:
    """The name of a category of the host or the device in all figures and tables."""
    return _LABELS.get(name, name)


def category_meaning(name: str) -> str:
    """What the time of a category is spent on; empty for one that a program names itself."""
    return _CATEGORIES.get(name, _OTHER_CATEGORY)[1]
