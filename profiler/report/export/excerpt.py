"""The part of a run's timeline that an HTML report carries: steps from its middle, as many as a page can hold."""

from __future__ import annotations

import gzip
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.model import Timeline
from profiler.core import units
from profiler.core.errors import ProfilerError
from profiler.core.notice import Notice
from profiler.report.export import perfetto
from profiler.run.filter import filter_time
from profiler.run.model import Run

MAX_BYTES: Final = 400_000
"""Limit of the compressed trace. Base64 adds a third; a page with one per side stays below 2 MB with two sides."""
_MAX_EVENTS: Final = 60_000  # which take about MAX_BYTES; longer parts are not even rendered
_PARTS: Final = 1024  # that a run without steps is divided into
_EVENTS_PER_RECORD: Final = {
    "steps": 1, "regions": 1, "calls": 1, "activities": 1, "values": 1, "samples": 1, "stacks": 4
}  # fmt: skip
"""Estimates: about four frames change from one stack sample to the next."""


def timeline_excerpt(run: Run) -> Timeline:
    """As many steps around the middle of `run` as fit; the complete run where it fits."""
    edges, in_steps = _edges(run)
    begins = {
        name: np.sort(table["time" if "time" in (table.dtype.names or ()) else "begin"])
        for name, table in ((name, getattr(run, name)) for name in _EVENTS_PER_RECORD)
    }

    def events() -> int:
        """About how many events the current part has."""
        window = int(edges[first]), int(edges[last])
        return sum(
            _EVENTS_PER_RECORD[name] * int(np.diff(np.searchsorted(times, window))[0]) for name, times in begins.items()
        )

    first, last = 0, len(edges) - 1
    while last - first > 1 and events() > _MAX_EVENTS:
        first, last = middle_half(first, last)
    try:
        while True:
            complete = last - first == len(edges) - 1
            part = run if complete else filter_time(run, int(edges[first]), int(edges[last]))
            data = gzip.compress("".join(perfetto.render(part)).encode(), mtime=0)
            if len(data) <= MAX_BYTES:
                return Timeline(data, _window(edges, first, last, in_steps), complete)
            if last - first <= 1:
                return Timeline(reason=Notice("trace-too-large", {"bytes": len(data)}))
            first, last = middle_half(first, last)
    except ProfilerError:
        return Timeline(reason=Notice("no-records"))


def _edges(run: Run) -> tuple[npt.NDArray[np.int64], bool]:
    """Boundaries of the steps of the first process that has some, or of equal parts of the run, and which it is."""
    steps = run.steps[run.steps["pid"] == run.steps["pid"][0]] if len(run.steps) else run.steps
    if len(steps):
        return np.unique(np.concatenate([steps["begin"], steps["end"]])).astype(np.int64), True
    ends = [int(table["end"].max()) for table in (run.regions, run.calls, run.stacks) if len(table)]
    end = max(run.info.begin, run.info.end or 0, *ends)
    return np.linspace(run.info.begin, end + 1, _PARTS + 1).astype(np.int64), False


def middle_half(first: int, last: int) -> tuple[int, int]:
    """Half as many steps around the same middle, at least one."""
    count = max(1, (last - first) // 2)
    first += (last - first - count) // 2
    return first, first + count


def _window(edges: npt.NDArray[np.int64], first: int, last: int, in_steps: bool) -> str:
    """Which part of the run it is: 'steps 41 to 60 of 100, 1.20 s'."""
    length = units.seconds(float(edges[last] - edges[first]) / 1e9)
    total = len(edges) - 1
    complete = last - first == total
    if not in_steps:
        return f"the whole run, {length}" if complete else f"{length} of the middle of the run"
    return f"all {total:,} steps, {length}" if complete else f"steps {first + 1:,} to {last:,} of {total:,}, {length}"
