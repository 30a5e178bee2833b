"""Tells what the stepping thread was doing at every moment: its innermost region, call or wait, and the category."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Indices, Segments, Times, covered_within, innermost, times, union
from profiler.analyse.model.measures import HOST_CATEGORIES
from profiler.analyse.window import Window, device_kind, is_collective, thread_rows
from profiler.run.model import Run, Table
from profiler.run.tables import CallKind

REGION, CALL, BLOCKED = range(3)
_CALL_RANK = 1 << 20
"""A call is inside a region of the same extent; regions rank by their depth, which is far below this."""

FSYNC: Final = "fsync"
"""The region of a wait until a file is on the disk; within a checkpoint it is a part of writing that."""
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
    FSYNC: "waiting",
    "h2d": "copy",
    "d2h": "copy",
    "copy": "copy",
    "sync": "sync",
    "workers": "sync",
}
"""Name of a region (case ignored) -> host category. Any other name is `python`: a region shows that host Python of that
name ran. What runs inside a region keeps its category, since the innermost wins."""

RECORDING: Final = "recording"
"""The region in which `Recorder.record_overhead` records the time that recording itself took; category `python`."""

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
    CallKind.MIGHT_SYNC: "compute",
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


@dataclass(frozen=True, eq=False, slots=True)
class HostTimeline:
    """Exclusive segments of the stepping thread, over the whole run; what lies between them is uncovered."""

    regions: Table
    calls: Table
    call_begin: Times
    """The begin of each of `calls`, in the order in which they were recorded."""
    segments: Segments
    source: Indices
    """REGION, CALL or BLOCKED (the part of a call in which the host was blocked) for each segment."""
    record: Indices
    """The row in `regions` or `calls` for each segment."""
    category: Indices
    """The number of the host category (CODE) of each segment."""
    site: Indices | None = None
    """The number of the site of each segment in a foreign trace, or -1; None where only calls have sites."""
    yields: npt.NDArray[np.bool_] | None = None
    """Whether each segment of a foreign trace may be a wait for another thread."""


def host_timeline(run: Run, window: Window) -> HostTimeline:
    """Attribute the stepping thread's time to its innermost region, call or blocked part of a call.

    A call that would wait if its tensor were on a GPU does its work here: some make a list under the GIL, some compute.
    So it covers nothing, and samples say which.
    """
    return thread_timeline(run, thread_rows(run.regions, window), thread_rows(run.calls, window))


def thread_timeline(run: Run, regions: Table, calls: Table) -> HostTimeline:
    """Attribute the time of the thread that these regions and calls are of."""
    calls = calls[calls["kind"] != CallKind.MIGHT_SYNC]
    begin, end = times(calls["begin"]), times(calls["end"])
    blocked = np.clip(times(calls["blocked"]), 0, end - begin)
    waits = np.flatnonzero(blocked)
    depth = np.concatenate([times(regions["depth"]), np.zeros(len(calls) + len(waits), np.int64)])
    record = np.concatenate([np.arange(len(regions)), np.arange(len(calls)), waits])
    source = np.repeat([REGION, CALL, BLOCKED], [len(regions), len(calls), len(waits)])
    segments = innermost(
        np.concatenate([times(regions["begin"]), begin, (end - blocked)[waits]]),
        np.concatenate([times(regions["end"]), end, end[waits]]),
        np.where(source == REGION, 0, _CALL_RANK + source) + depth,
    )
    by_name = np.array([CODE[region_category(name, device_kind(run))] for name in run.names] or [0], np.int64)
    by_kind = np.array([CODE[CALL_CATEGORIES[kind]] for kind in CallKind], np.int64)[calls["kind"]]
    if device_kind(run) != "cuda":  # there a collective only queues its work
        by_kind[is_collective(run, calls)] = CODE["ranks"]
    by_region = by_name[regions["name"]]
    by_region[_is_sync_of_checkpoint(run, regions, by_region)] = CODE["checkpoint"]
    category = np.concatenate([by_region, by_kind, np.full(len(waits), CODE["sync"], np.int64)])
    owner = segments.owner
    return HostTimeline(regions, calls, begin, segments, source[owner], record[owner], times(category)[owner])


def _is_sync_of_checkpoint(run: Run, regions: Table, category: Indices) -> npt.NDArray[np.bool_]:
    """Which regions are waits for the disk within a region of a checkpoint, such as torch.distributed's own."""
    begin, end = times(regions["begin"]), times(regions["end"])
    is_sync = np.array([name == FSYNC for name in run.names] or [False])[regions["name"]]
    checkpoint = category == CODE["checkpoint"]
    within = covered_within(union(begin[checkpoint], end[checkpoint]), begin, end)
    return np.asarray(is_sync & (end > begin) & (within == end - begin))
