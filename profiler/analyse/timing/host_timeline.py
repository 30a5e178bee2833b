"""What the stepping thread was doing at every moment: its innermost region, call or wait."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler.analyse.intervals import Indices, Segments, Times, innermost, times
from profiler.analyse.timing.categories import CALL_CATEGORIES, CODE, region_category
from profiler.analyse.window import Window, device_kind, thread_rows
from profiler.run.model import Run, Table
from profiler.run.tables import CallKind

REGION, CALL, BLOCKED = range(3)
_CALL_RANK = 1 << 20
"""A call is inside a region of the same extent; regions rank by their depth, which is far below this."""


@dataclass(frozen=True, eq=False, slots=True)
class HostTimeline:
    """Exclusive segments of the stepping thread, over the whole run; what lies between them is uncovered."""

    regions: Table
    calls: Table
    call_begin: Times
    """Of each of `calls`, which come as they were recorded."""
    segments: Segments
    source: Indices
    """Of each segment: REGION, CALL, or BLOCKED (the part of a call in which the host was blocked)."""
    record: Indices
    """Of each segment: the row in `regions` or `calls`."""
    category: Indices
    """Of each segment: the number of its host category (categories.CODE)."""


def host_timeline(run: Run, window: Window) -> HostTimeline:
    """Attribute the stepping thread's time to its innermost region, call or blocked part of a call.

    A call that would wait if its tensor were on a GPU does its work here: some make a list under the GIL, some compute.
    So it covers nothing, and samples say which.
    """
    regions, calls = thread_rows(run.regions, window), thread_rows(run.calls, window)
    calls = calls[calls["kind"] != CallKind.WOULD_SYNC]
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
    by_kind = np.array([CODE[CALL_CATEGORIES[kind]] for kind in CallKind], np.int64)
    category = np.concatenate(
        [by_name[regions["name"]], by_kind[calls["kind"]], np.full(len(waits), CODE["sync"], np.int64)]
    )
    owner = segments.owner
    return HostTimeline(regions, calls, begin, segments, source[owner], record[owner], times(category)[owner])
