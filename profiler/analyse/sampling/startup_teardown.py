"""Time in which no step was measured: before the first step, in warm-up and pauses, and after the last step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Intervals, union
from profiler.analyse.model import LineCost, Period, UnmeasuredPeriod
from profiler.analyse.sampling.lines import most_frequent
from profiler.analyse.sampling.stacks import USUAL_PERIOD_S, Stacks, sample_ns
from profiler.analyse.statistics import share_interval
from profiler.analyse.window import NS_PER_S, Window, process_rows, thread_rows
from profiler.run.model import Run, Site, Table

MAX_LINES: Final = 5
WELL_SAMPLED: Final = 0.5
"""If samples cover at least this share of a period, they are scaled to all of it; otherwise they count as they are."""
_NEVER: Final = np.iinfo(np.int64).max


def startup_teardown(stacks: Stacks, window: Window) -> tuple[UnmeasuredPeriod, ...]:
    """The periods, in order of time, with the lines of the stepping thread that took most of each."""
    if not len(window):
        return ()
    samples = thread_rows(stacks.run.stacks, window)
    return tuple(
        UnmeasuredPeriod(period, spans.measure() / NS_PER_S, _lines(stacks, samples, spans))
        for period, spans in _periods(stacks.run, window, samples)
    )


def _periods(run: Run, window: Window, samples: Table) -> Iterator[tuple[Period, Intervals]]:
    """The periods of the stepping process. The last one ends with the run or, if that is unknown, with the last
    sample."""
    steps = process_rows(run.steps, window)
    warm, traced = steps["warmup"] == 1, _traced(run, steps)
    measured = steps["begin"][~warm]
    settled = len(measured) > 0 and steps["begin"] >= measured.min()
    parts = {
        Period.WARM_UP: warm & ~traced & ~settled,
        Period.TRACED: warm & traced,
        Period.PAUSE: warm & ~traced & settled,
    }
    first, last = int(steps["begin"].min()), int(steps["end"].max())
    end = run.info.end or int(samples["end"].max(initial=last))
    periods = {Period.STARTUP: union([run.info.begin], [first])}
    periods |= {period: union(steps["begin"][rows], steps["end"][rows]) for period, rows in parts.items()}
    periods[Period.TEARDOWN] = union([last], [end])
    yield from ((period, spans) for period, spans in periods.items() if len(spans))


def _traced(run: Run, steps: Table) -> npt.NDArray[np.bool_]:
    """Which steps torch's profiler touched, from its start to the end of its writing."""
    trace = run.info.facts.get("trace")
    began, ended = (trace.get("began"), trace.get("ended")) if isinstance(trace, Mapping) else (None, None)
    if not isinstance(began, int):
        return np.zeros(len(steps), np.bool_)
    return np.asarray((steps["end"] > began) & (steps["begin"] < (ended if isinstance(ended, int) else _NEVER)))


def _lines(stacks: Stacks, samples: Table, spans: Intervals) -> tuple[LineCost, ...]:
    ns = np.bincount(samples["stack"], sample_ns(samples, spans))
    lines: defaultdict[Site, Counter[str]] = defaultdict(Counter)
    for number in np.flatnonzero(ns).tolist():
        lines[stacks[number].site][stacks[number].calls] += ns[number]
    sampled, total = float(ns.sum()), spans.measure()
    period = (stacks.period or USUAL_PERIOD_S) * NS_PER_S
    scale = total / sampled if sampled >= WELL_SAMPLED * total else 1.0
    rows = []
    for site, calls in lines.items():
        line_ns = float(calls.total())
        share = line_ns * scale / total
        low, high = share_interval(share, sampled / period)
        count, seconds = max(1, round(line_ns / period)), share * total / NS_PER_S
        rows.append(LineCost(stacks.relative(site), most_frequent(calls), seconds, share, low, high, count))
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.site))[:MAX_LINES])
