"""Categories of a step's time: their order, what they mean, and their tones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from profiler.analyse.model import DEVICE_CATEGORIES, HOST_CATEGORIES
from profiler.report.subject import View

CATEGORY_TONES: Mapping[str, str] = {
    "input": "c1",
    "sync": "c2",
    "copy": "c3",
    "launch": "c4",
    "framework": "c5",
    "compute": "c6",
    "log": "c7",
    "checkpoint": "c8",
    "python": "c9",
    "unattributed": "c10",
    "communication": "c5",
    "idle": "idle",
}
"""The host's and the device's categories; the same word has the same tone in both."""

MEANINGS: Mapping[str, str] = {
    "input": "waiting for data, tokenization",
    "sync": "blocked until the device, or a worker, finished",
    "copy": "in a copy call, not blocked",
    "launch": "other calls toward the device",
    "framework": "inside the framework's operators",
    "compute": "operators that are the work itself",
    "log": "logging",
    "checkpoint": "writing checkpoints",
    "python": "the program's own Python",
    "unattributed": "nothing was seen",
    "communication": "between devices",
    "idle": "nothing to do",
}


def categories(views: Iterable[View], *, device: bool = False) -> tuple[str, ...]:
    """The categories that any side knows, in their standard order."""
    standard = DEVICE_CATEGORIES if device else HOST_CATEGORIES
    found = {
        name for view in views for name in (view.any_detail.device_breakdown if device else view.any_detail.breakdown)
    }
    return (*(name for name in standard if name in found), *sorted(found.difference(standard)))


def tone(category: str) -> str:
    """Tone of a category."""
    return CATEGORY_TONES.get(category, "c8")
