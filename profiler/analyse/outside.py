"""Where the time went in which no step was measured: before the first step, warming up, after the last, between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.frames import read_stack
from profiler.analyse.gil import USUAL_PERIOD_S, period_s, wilson
from profiler.analyse.lines import folder_of, shown
from profiler.analyse.model import LineCost, Period, UnmeasuredPeriod
from profiler.analyse.places import places_of
from profiler.analyse.timeline import Intervals, overlaps, times, union
from profiler.analyse.window import NS_PER_S, Window, of_process, of_thread
from profiler.run.model import Run, Site, Table

MOST_LINES: Final = 5
_NEVER: Final = np.iinfo(np.int64).max
HALF: Final = 0.5
"""Share of a stretch from which its samples stand for all of it; below, for what they saw."""


def startup_teardown(run: Run, window: Window) -> tuple[UnmeasuredPeriod, ...]:
    """The stretches, in order of time, with the lines of the stepping thread that took most of each."""
    if not len(window):
        return ()
    return tuple(
        UnmeasuredPeriod(period, spans.measure() / NS_PER_S, _lines(run, window, spans))
        for period, spans in _stretches(run, window)
    )


def _stretches(run: Run, window: Window) -> Iterator[tuple[Period, Intervals]]:
    """Of the stepping process; its end is the run's, or where that is not known its last sample."""
    steps = of_process(run.steps, window)
    warm, traced = steps["warmup"] == 1, _traced(run, steps)
    measured = steps["begin"][~warm]
    settled = len(measured) > 0 and steps["begin"] >= measured.min()
    parts = {
        Period.WARM_UP: warm & ~traced & ~settled,
        Period.TRACED: warm & traced,
        Period.PAUSE: warm & ~traced & settled,
    }
    first, last = int(steps["begin"].min()), int(steps["end"].max())
    samples = of_thread(run.stacks, window)
    end = run.info.end or int(samples["end"].max(initial=last))
    between = ((name, union(steps["begin"][rows], steps["end"][rows])) for name, rows in parts.items())
    for name, spans in (
        (Period.STARTUP, union([run.info.begin], [first])),
        *between,
        (Period.TEARDOWN, union([last], [end])),
    ):
        if len(spans):
            yield name, spans


def _traced(run: Run, steps: Table) -> npt.NDArray[np.bool_]:
    """Which steps torch's profiler touched, from its start to the end of its writing."""
    trace = run.info.facts.get("trace")
    began, ended = (trace.get("began"), trace.get("ended")) if isinstance(trace, Mapping) else (None, None)
    if not isinstance(began, int):
        return np.zeros(len(steps), np.bool_)
    return np.asarray((steps["end"] > began) & (steps["begin"] < (ended if isinstance(ended, int) else _NEVER)))


def _lines(run: Run, window: Window, spans: Intervals) -> tuple[LineCost, ...]:
    samples = of_thread(run.stacks, window)
    cut = overlaps(times(samples["begin"]), times(samples["end"]), spans)
    if not len(cut.left):
        return ()
    ns = np.bincount(samples["stack"][cut.left], cut.end - cut.begin)
    found: dict[Site, dict[str, float]] = {}
    places = places_of(run)
    for one in np.flatnonzero(ns).tolist():
        stack = read_stack(run.stack_frames[one], places)
        calls = found.setdefault(stack.site, {})
        calls[stack.calls] = calls.get(stack.calls, 0.0) + float(ns[one])
    seen, whole = float(ns.sum()), spans.measure()
    period = (period_s(run) or USUAL_PERIOD_S) * NS_PER_S
    scale = whole / seen if seen >= HALF * whole else 1.0
    folder = folder_of(run)
    rows = []
    for site, calls in found.items():
        own = sum(calls.values())
        share = own * scale / whole
        low, high = wilson(share, seen / period)
        most = max(calls, key=lambda name: (calls[name], name))
        count = max(1, round(own / period))
        rows.append(LineCost(shown(site, folder), most, share * whole / NS_PER_S, share, low, high, count))
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.site))[:MOST_LINES])
