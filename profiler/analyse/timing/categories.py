"""The host category of a region or of a runtime call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from profiler.analyse.model import HOST_CATEGORIES
from profiler.run.tables import CallKind

REGION_CATEGORIES: Final[Mapping[str, str]] = {
    "tokenize": "input",
    "data": "input",
    "input": "input",
    "loader": "input",
    "loader start": "input",
    "worker start": "input",
    "dataset": "input",
    "dataset map": "input",
    "collate": "input",
    "pin memory": "input",
    "receive": "input",
    "log": "log",
    "logging": "log",
    "checkpoint": "checkpoint",
    "save": "checkpoint",
    "h2d": "copy",
    "d2h": "copy",
    "copy": "copy",
    "sync": "sync",
    "workers": "sync",
}
"""Name of a region (case ignored) -> host category. Any other name is `python`: a region shows that host Python of that
name ran. What runs inside a region keeps its category, since the innermost wins."""

RECORDING: Final = "recording"
"""The region in which profiler.marks writes what it recorded; category `python`."""

CALL_CATEGORIES: Final[Mapping[CallKind, str]] = {
    CallKind.SYNC: "sync",
    CallKind.H2D: "copy",
    CallKind.D2H: "copy",
    CallKind.D2D: "copy",
    CallKind.MEMSET: "copy",
    CallKind.LAUNCH: "launch",
    CallKind.ALLOC: "launch",
    CallKind.FREE: "launch",
    CallKind.EVENT: "launch",
    CallKind.OTHER: "launch",
    CallKind.WOULD_SYNC: "compute",
}
"""Kind of a runtime call -> host category of the time in which it did not block; where it blocked, it is `sync`."""

SUBMITTING: Final = (CallKind.LAUNCH, CallKind.H2D, CallKind.D2H, CallKind.D2D, CallKind.MEMSET)
"""Calls that put work on a device's queue: what ends a device's idleness."""

CODE: Final[Mapping[str, int]] = {name: number for number, name in enumerate(HOST_CATEGORIES)}
"""Host category -> its number, the column of it in a ledger."""

OPERATOR: Final = "operator "
"""Prefix of regions that are torch operators of a foreign trace: framework time, and on a CPU the work itself."""


def region_category(name: str, device: str = "") -> str:
    """Host category of a region of this name; `device` is what the program states that it runs on."""
    if name.startswith(OPERATOR):
        return "compute" if device == "cpu" else "framework"
    return REGION_CATEGORIES.get(name.strip().lower(), "python")
