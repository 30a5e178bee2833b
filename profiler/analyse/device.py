"""What the device was doing: busy, and the exclusive device categories of the measured time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from profiler.analyse.timeline import Intervals, intersect, subtract, union
from profiler.analyse.window import LEVEL_LIGHT, NO_QUEUE, Window, device_kind, of_process
from profiler.run.model import DEVICE_CATEGORIES, Measure, Run
from profiler.run.tables import ActivityKind

NO_ACTIVITIES: Final = "no activities of a device were recorded"
SOURCE: Final = "union over all streams of the process's activities"
_CATEGORIES: Final[tuple[tuple[str, tuple[ActivityKind, ...]], ...]] = (
    ("compute", (ActivityKind.KERNEL,)),
    ("copy", (ActivityKind.H2D, ActivityKind.D2H, ActivityKind.D2D, ActivityKind.MEMSET)),
    ("communication", (ActivityKind.COMMUNICATION,)),
)
"""In order of precedence: what runs at the same time as a kernel is hidden behind it."""


def no_queue_reason(run: Run, window: Window) -> str:
    """Why this run cannot say when the device was busy; empty when it can."""
    if device_kind(run) == "cpu":
        return NO_QUEUE
    if window.reason:
        return window.reason
    if not len(of_process(run.activities, window)):
        return LEVEL_LIGHT if run.info.level == "light" else NO_ACTIVITIES
    return ""


def busy_intervals(run: Run, window: Window, kinds: tuple[ActivityKind, ...] = tuple(ActivityKind)) -> Intervals:
    """When any stream of any device of the stepping process was occupied by activities of `kinds`."""
    activities = of_process(run.activities, window)
    if len(kinds) < len(ActivityKind):
        activities = activities[np.isin(activities["kind"], kinds)]
    return union(activities["begin"], activities["end"])


def device_breakdown(run: Run, window: Window) -> Mapping[str, Measure]:
    """Mean seconds per step of each of DEVICE_CATEGORIES; they sum to the step's wall time."""
    reason = no_queue_reason(run, window)
    if reason:
        return {name: Measure(name, None, "s", reason=reason) for name in DEVICE_CATEGORIES}
    rest = window.spans
    parts = {}
    for name, kinds in _CATEGORIES:
        busy = busy_intervals(run, window, kinds)
        parts[name] = intersect(rest, busy).measure()
        rest = subtract(rest, busy)
    parts["idle"] = rest.measure()
    return {name: Measure(name, window.per_step(ns), "s", n=len(window), source=SOURCE) for name, ns in parts.items()}
