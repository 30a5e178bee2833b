"""The stretch of a run that a report carries as a trace: steps from its middle, as many as a page can hold."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.model import Timeline
from profiler.core import units
from profiler.core.errors import ProfilerError
from profiler.report.render import perfetto
from profiler.run.filter import filter_time
from profiler.run.model import Run

MOST_BYTES: Final = 400_000
"""Of a trace, compressed: a third more in a page, which may have one a side and stays below 2 MB with two."""
_MOST_RECORDS: Final = 60_000  # which make about MOST_BYTES; more are not even tried
_STRETCHES: Final = 1024  # that a run without steps is divided into
_WEIGHTS: Final = {"steps": 1, "regions": 1, "calls": 1, "activities": 1, "values": 1, "samples": 1, "stacks": 4}
"""Events that a record makes, about: of a stack sample some frames change."""


def of_run(run: Run) -> Timeline:
    """As many steps around the middle of `run` as fit; all of it where it fits."""
    edges, steps = _edges(run)
    weight = _weight(run)
    first, last = 0, len(edges) - 1
    while last - first > 1 and weight(int(edges[first]), int(edges[last])) > _MOST_RECORDS:
        first, last = _half(first, last)
    try:
        while True:
            whole = last - first == len(edges) - 1
            part = run if whole else filter_time(run, int(edges[first]), int(edges[last]))
            data = gzip.compress("".join(perfetto.render(part)).encode(), mtime=0)
            if len(data) <= MOST_BYTES:
                return Timeline(data, _words(edges, first, last, steps), whole)
            if last - first <= 1:
                return Timeline(reason=f"a single step of it takes {units.size(len(data))}, too much for a page")
            first, last = _half(first, last)
    except ProfilerError as error:
        return Timeline(reason=str(error).rpartition(": ")[2])


def _edges(run: Run) -> tuple[npt.NDArray[np.int64], bool]:
    """Boundaries of the steps of the process that has most, the run's ends among them; made-up ones without steps."""
    steps = run.steps[run.steps["pid"] == run.steps["pid"][0]] if len(run.steps) else run.steps
    moments = [run.info.begin, run.info.end or 0]
    for table, column in ((run.steps, "end"), (run.regions, "end"), (run.calls, "end"), (run.stacks, "end")):
        moments += [int(table[column].max())] if len(table) else []
    if len(steps):
        return np.unique(np.concatenate([steps["begin"], steps["end"]])).astype(np.int64), True
    return np.linspace(moments[0], max(moments) + 1, _STRETCHES + 1).astype(np.int64), False


def _weight(run: Run) -> Callable[[int, int], int]:
    """How many events begin in a stretch, about."""
    begins = {
        name: np.sort(table["time" if "time" in (table.dtype.names or ()) else "begin"])
        for name, table in ((name, getattr(run, name)) for name in _WEIGHTS)
    }
    return lambda begin, end: sum(
        _WEIGHTS[name] * int(np.diff(np.searchsorted(times, (begin, end)))[0]) for name, times in begins.items()
    )


def _half(first: int, last: int) -> tuple[int, int]:
    """Half as many, around the same middle; at least one."""
    count = max(1, (last - first) // 2)
    first += (last - first - count) // 2
    return first, first + count


def _words(edges: npt.NDArray[np.int64], first: int, last: int, steps: bool) -> str:
    length = units.seconds(float(edges[last] - edges[first]) / 1e9)
    whole = len(edges) - 1
    if not steps:
        return f"the whole run, {length}" if last - first == whole else f"{length} of the middle of the run"
    if last - first == whole:
        return f"all {whole:,} steps, {length}"
    return f"steps {first + 1:,} to {last:,} of {whole:,}, {length}"
