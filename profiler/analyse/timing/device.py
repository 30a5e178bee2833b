"""When the device was busy, and the exclusive device categories of the measured time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from profiler.analyse.intervals import Intervals, intersect, subtract, union
from profiler.analyse.model import DEVICE_CATEGORIES, Measure
from profiler.analyse.window import LEVEL_LIGHT, NO_QUEUE, Window, device_kind, process_rows
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
    if not len(process_rows(run.activities, window)):
        return LEVEL_LIGHT if run.info.level == "light" else NO_ACTIVITIES
    return None


def busy_intervals(run: Run, window: Window, kinds: tuple[ActivityKind, ...] = tuple(ActivityKind)) -> Intervals:
    """When any stream of any device of the stepping process was occupied by activities of `kinds`."""
    activities = process_rows(run.activities, window)
    if len(kinds) < len(ActivityKind):
        activities = activities[np.isin(activities["kind"], kinds)]
    return union(activities["begin"], activities["end"])


def busy_by_device(run: Run, window: Window, kinds: tuple[ActivityKind, ...] = tuple(ActivityKind)) -> list[Intervals]:
    """When each device that the stepping process used was occupied by activities of `kinds`."""
    rows = process_rows(run.activities, window)
    single = len(rows) and (rows["device"] == rows["device"][0]).all()
    devices = [rows] if single else list(group_rows(rows, "device"))
    if len(kinds) < len(ActivityKind):
        devices = [rows[np.isin(rows["kind"], kinds)] for rows in devices]
    return [union(rows["begin"], rows["end"]) for rows in devices]


def device_warnings(run: Run, window: Window) -> Iterable[Notice]:
    """How busy each device was, of a process that used several."""
    if not len(window) or no_queue_reason(run, window):
        return
    busy = [intersect(times, window.spans).measure() / window.wall_ns for times in busy_by_device(run, window)]
    if len(busy) < 2:
        return
    numbers = np.unique(process_rows(run.activities, window)["device"]).tolist()
    yield Notice("several-devices", {"busy": tuple(zip(numbers, busy, strict=True))})


def device_breakdown(run: Run, window: Window) -> Mapping[str, Measure]:
    """Mean seconds per step of each of DEVICE_CATEGORIES; they sum to its wall time. The mean of several devices."""
    reason = no_queue_reason(run, window)
    if reason:
        return {name: Measure(name, None, "s", reason=reason) for name in DEVICE_CATEGORIES}
    busy_in = {name: busy_by_device(run, window, kinds) for name, kinds in _CATEGORIES}
    devices = len(busy_in["compute"])
    parts = dict.fromkeys(DEVICE_CATEGORIES, 0.0)
    for number in range(devices):
        remaining = window.spans
        for name, busy in busy_in.items():
            parts[name] += intersect(remaining, busy[number]).measure() / devices
            remaining = subtract(remaining, busy[number])
        parts["idle"] += remaining.measure() / devices
    return {name: Measure(name, window.per_step(ns), "s", n=len(window), source=SOURCE) for name, ns in parts.items()}


def idle_ns(run: Run, window: Window) -> int:
    """ns of the measured time in which no activity ran."""
    return window.wall_ns - intersect(busy_intervals(run, window), window.spans).measure()
