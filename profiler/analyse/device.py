"""What the device was doing: busy, and the exclusive device categories of the measured time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from profiler.analyse.model import DEVICE_CATEGORIES, Measure
from profiler.analyse.timeline import Intervals, intersect, subtract, union
from profiler.analyse.window import LEVEL_LIGHT, NO_QUEUE, Window, device_kind, of_process
from profiler.core.notice import Notice
from profiler.run.filter import group_rows
from profiler.run.model import Run
from profiler.run.tables import ActivityKind

NO_ACTIVITIES: Final = Notice("no-activities")
SOURCE: Final = "activities"
_CATEGORIES: Final[tuple[tuple[str, tuple[ActivityKind, ...]], ...]] = (
    ("compute", (ActivityKind.KERNEL,)),
    ("copy", (ActivityKind.H2D, ActivityKind.D2H, ActivityKind.D2D, ActivityKind.MEMSET)),
    ("communication", (ActivityKind.COMMUNICATION,)),
)
"""In order of precedence: what runs at the same time as a kernel is hidden behind it."""


def no_queue_reason(run: Run, window: Window) -> Notice | None:
    """Why this run cannot say when the device was busy; None when it can."""
    if device_kind(run) == "cpu":
        return NO_QUEUE
    if window.reason:
        return window.reason
    if not len(of_process(run.activities, window)):
        return LEVEL_LIGHT if run.info.level == "light" else NO_ACTIVITIES
    return None


def busy_intervals(run: Run, window: Window, kinds: tuple[ActivityKind, ...] = tuple(ActivityKind)) -> Intervals:
    """When any stream of any device of the stepping process was occupied by activities of `kinds`."""
    activities = of_process(run.activities, window)
    if len(kinds) < len(ActivityKind):
        activities = activities[np.isin(activities["kind"], kinds)]
    return union(activities["begin"], activities["end"])


def busy_by_device(run: Run, window: Window, kinds: tuple[ActivityKind, ...] = tuple(ActivityKind)) -> list[Intervals]:
    """When each device that the stepping process used was occupied; of those that `kinds` never occupied nothing."""
    own = of_process(run.activities, window)
    devices = [own] if len(own) and (own["device"] == own["device"][0]).all() else list(group_rows(own, "device"))
    kept = [rows if len(kinds) == len(ActivityKind) else rows[np.isin(rows["kind"], kinds)] for rows in devices]
    return [union(rows["begin"], rows["end"]) for rows in kept]


def uneven(run: Run, window: Window) -> Iterable[Notice]:
    """How busy each device of a process that used several was; nothing where it used one or none."""
    if not len(window) or no_queue_reason(run, window):
        return
    busy = [intersect(one, window.spans).measure() / window.wall_ns for one in busy_by_device(run, window)]
    if len(busy) < 2:
        return
    numbers = np.unique(of_process(run.activities, window)["device"]).tolist()
    yield Notice("several-devices", {"busy": tuple(zip(numbers, busy, strict=True))})


def device_breakdown(run: Run, window: Window) -> Mapping[str, Measure]:
    """Mean seconds per step of each of DEVICE_CATEGORIES; they sum to its wall time. Of several devices the mean."""
    reason = no_queue_reason(run, window)
    if reason:
        return {name: Measure(name, None, "s", reason=reason) for name in DEVICE_CATEGORIES}
    busy_in = {name: busy_by_device(run, window, kinds) for name, kinds in _CATEGORIES}
    devices = len(busy_in["compute"])
    parts = dict.fromkeys(DEVICE_CATEGORIES, 0.0)
    for number in range(devices):
        rest = window.spans
        for name, busy in busy_in.items():
            parts[name] += intersect(rest, busy[number]).measure() / devices
            rest = subtract(rest, busy[number])
        parts["idle"] += rest.measure() / devices
    return {name: Measure(name, window.per_step(ns), "s", n=len(window), source=SOURCE) for name, ns in parts.items()}
