"""Tells when the device was busy, and the exclusive device categories of the measured time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from profiler.analyse.intervals import Intervals, intersect, overlaps, subtract, union
from profiler.analyse.model.device import DevicePart, KernelTime
from profiler.analyse.model.measures import DEVICE_CATEGORIES, Measure
from profiler.analyse.window import LEVEL_LIGHT, NO_QUEUE, Window, device_kind, process_rows
from profiler.core.errors import Notice
from profiler.run.filter import rows_by
from profiler.run.model import Run, Table
from profiler.run.tables import ActivityKind

NO_ACTIVITIES: Final = Notice("no-activities")
SOURCE: Final = "activities"
_CATEGORIES: Final[tuple[tuple[str, tuple[ActivityKind, ...]], ...]] = (
    ("compute", (ActivityKind.KERNEL,)),
    ("copy", (ActivityKind.H2D, ActivityKind.D2H, ActivityKind.D2D, ActivityKind.MEMSET)),
    ("communication", (ActivityKind.COMMUNICATION,)),
)
"""The categories in order of precedence: what runs at the same time as a kernel is hidden behind it."""
ACTIVITY_CATEGORIES: Final[Mapping[int, str]] = {kind: name for name, kinds in _CATEGORIES for kind in kinds}
"""Kind of an activity -> device category."""


def no_queue_reason(run: Run, window: Window) -> Notice | None:
    """Why this run cannot say when the device was busy; None when it can."""
    if device_kind(run) == "cpu":
        return NO_QUEUE
    if window.reason:
        return window.reason
    if not len(process_rows(run.activities, window)):
        return LEVEL_LIGHT if run.info.level == "light" else NO_ACTIVITIES
    return None


def busy_intervals(run: Run, window: Window) -> Intervals:
    """When any stream of any device of the stepping process was occupied."""
    activities = process_rows(run.activities, window)
    return union(activities["begin"], activities["end"])


def busy_by_device(run: Run, window: Window) -> dict[int, Intervals]:
    """When each device that the stepping process used was occupied, by number of the device."""
    return {number: union(rows["begin"], rows["end"]) for number, rows in _activities_by_device(run, window).items()}


def _activities_by_device(run: Run, window: Window) -> dict[int, Table]:
    return rows_by(process_rows(run.activities, window), "device")


def device_warnings(run: Run, window: Window) -> Iterable[Notice]:
    """A warning that says how busy each device was, if the process used several."""
    if not len(window) or no_queue_reason(run, window):
        return
    devices = busy_by_device(run, window).items()
    busy = tuple((number, intersect(times, window.spans).measure() / window.wall_ns) for number, times in devices)
    if len(busy) > 1:
        yield Notice("several-devices", {"busy": busy})


def device_parts(run: Run, window: Window) -> tuple[DevicePart, ...]:
    """The device's time by kind of work and of memory; what an earlier kind occupies at the same time is hidden."""
    if no_queue_reason(run, window):
        return ()
    parts: dict[tuple[str, str], tuple[int, int]] = {}
    devices = _activities_by_device(run, window).values()
    memory_of = np.array([_memory(name) for name in run.names] or [0])
    for rows in devices:
        remaining = window.spans
        for kind in _PART_KINDS:
            of_kind = rows[rows["kind"] == kind]
            memories = memory_of[of_kind["name"]]
            for number in np.unique(memories).tolist():
                chosen = of_kind[memories == number]
                busy = intersect(window.spans, union(chosen["begin"], chosen["end"]))
                key = _PART_NAMES.get(kind, kind.name.lower()), _MEMORIES[number]
                total, exposed = parts.get(key, (0, 0))
                parts[key] = total + busy.measure(), exposed + intersect(remaining, busy).measure()
                remaining = subtract(remaining, busy)
    whole = window.wall_ns * max(1, len(devices))
    return tuple(DevicePart(*key, total / whole, exposed / whole) for key, (total, exposed) in parts.items() if total)


def float32_product_share(run: Run, window: Window) -> float:
    """The share of the wall time in which a device computes matrix products or convolutions in float32, without tensor
    cores, by the names that NVIDIA's libraries give their kernels; several devices are averaged."""
    if no_queue_reason(run, window):
        return 0.0
    is_product = np.array(
        [bool(_FLOAT32_PRODUCT.search(name)) and "tensorop" not in name for name in run.names] or [False]
    )
    devices = _activities_by_device(run, window).values()
    busy = 0
    for rows in devices:
        chosen = rows[(rows["kind"] == ActivityKind.KERNEL) & is_product[rows["name"]]]
        busy += intersect(window.spans, union(chosen["begin"], chosen["end"])).measure()
    return busy / (window.wall_ns * max(1, len(devices)))


_FLOAT32_PRODUCT: Final = re.compile(
    r"(^|_)s(gemm|cudnn)_|simt_sgemm|gemm_f32f32_f32f32_f32|convolve_sgemm<float|cudnn::.*[dw]grad\w*_engine<float"
)
"""cuBLAS and cuDNN: `volta_sgemm_64x64_tn`, `cudnn_ampere_scudnn_128x64_relu_...`, `implicit_convolve_sgemm<float, `.
Kernels with tensor cores are named `tensorop`, `s884`, `s1688`, `s16816`, `tf32` or `h`."""
MAX_KERNELS: Final = 15
"""Kernels of a run that are told apart."""


def kernel_times(run: Run, window: Window) -> tuple[KernelTime, ...]:
    """The MAX_KERNELS kernels with most time in the measured steps; communication is a kernel too."""
    if no_queue_reason(run, window):
        return ()
    activities = process_rows(run.activities, window)
    rows = activities[np.isin(activities["kind"], (ActivityKind.KERNEL, ActivityKind.COMMUNICATION))]
    cut = overlaps(rows["begin"], rows["end"], window.spans)
    names = rows["name"][cut.left]
    seconds = np.bincount(names, cut.end - cut.begin, minlength=len(run.names))
    # a kernel that crosses the end of a stretch is one call
    calls = np.bincount(rows["name"][np.unique(cut.left)], minlength=len(run.names))
    total = float(seconds.sum()) or 1.0
    largest = [number for number in np.argsort(-seconds, kind="stable")[:MAX_KERNELS].tolist() if seconds[number] > 0]
    return tuple(
        KernelTime(
            run.names[number],
            float(calls[number]) / len(window),
            window.per_step(float(seconds[number])),
            float(seconds[number]) / total,
        )
        for number in largest
    )


_PART_KINDS: Final = tuple(kind for _, kinds in _CATEGORIES for kind in kinds)
_PART_NAMES: Final[Mapping[ActivityKind, str]] = {ActivityKind.KERNEL: "compute"}
_MEMORIES: Final = ("", "pageable", "pinned")


def _memory(name: str) -> int:
    """The memory on the host's side that the name of a copy tells, as a number in _MEMORIES."""
    return next((number for number, memory in enumerate(_MEMORIES) if memory and memory.title() in name), 0)


def device_breakdown(run: Run, window: Window) -> Mapping[str, Measure]:
    """Mean seconds per step of each of DEVICE_CATEGORIES; they sum to its wall time. Several devices are averaged."""
    reason = no_queue_reason(run, window)
    if reason:
        return {name: Measure(name, None, "s", reason=reason) for name in DEVICE_CATEGORIES}
    parts = dict.fromkeys(DEVICE_CATEGORIES, 0.0)
    devices = _activities_by_device(run, window).values()
    for rows in devices:
        remaining = window.spans
        for name, kinds in _CATEGORIES:
            chosen = rows[np.isin(rows["kind"], kinds)]
            busy = union(chosen["begin"], chosen["end"])
            parts[name] += intersect(remaining, busy).measure() / len(devices)
            remaining = subtract(remaining, busy)
        parts["idle"] += remaining.measure() / len(devices)
    return {name: Measure(name, window.per_step(ns), "s", n=len(window), source=SOURCE) for name, ns in parts.items()}
