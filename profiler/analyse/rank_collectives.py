"""Finds the collectives in which ranks wait for one that arrives late, and what that rank did since the one before.

The n-th calls of one name belong together on all ranks, if most of them overlap: no rank leaves a collective before
the last one has arrived. Asynchronous collectives, which only begin a transfer, and those of parts of the ranks do not,
and stay out. DDP exchanges gradients within the backward pass, where no call shows the arrival.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import times, union
from profiler.analyse.model import CollectiveWait
from profiler.analyse.rank_ledger import excess_line
from profiler.analyse.ranks import MOSTLY, STRAGGLES, RankSteps
from profiler.analyse.sampling.stacks import Stacks
from profiler.analyse.window import NEARLY_ALL, NS_PER_S, Window, is_collective, thread_rows
from profiler.core.notice import Notice
from profiler.run.model import Run, Site, Table

_MIN_SAMPLES: Final = 5
"""Stack samples of a rank between the collectives below which its lines are not known, unless it is there for less than
STRAGGLES of its steps."""
_MAX_COLLECTIVES: Final = 5
_POINT_TO_POINT: Final = ("send", "recv")
"""Calls that wait for one other rank, which makes another call."""


@dataclass(frozen=True, eq=False, slots=True)
class _Arrivals:
    """The calls of one collective, made at one line, in the measured steps of all ranks."""

    name: str
    site: int
    rows: npt.NDArray[np.int64]
    """The row of each call in the calls of each rank (calls x ranks)."""
    begin: npt.NDArray[np.int64]


def collective_waits(stacks: Stacks, steps: RankSteps) -> tuple[CollectiveWait, ...]:
    """The collectives in which a rank makes the others wait for at least STRAGGLES of a step, the longest first; not
    those in which another rank does so for nearly as long, since then the ranks only take turns in being late."""
    if len(steps.windows) < 2 or not len(steps.rows):
        return ()
    run = stacks.run
    calls = [_collectives(run, window) for window in steps.windows]
    step = max(window.wall_ns / len(window) for window in steps.windows)
    waits = []
    for arrivals in _matched(run, steps.windows, calls):
        last = arrivals.begin.argmax(axis=1)
        waited = (arrivals.begin.max(axis=1, keepdims=True) - arrivals.begin).sum(axis=1) / (len(calls) - 1)
        caused = np.bincount(last, waited, len(calls)) / len(steps.rows)
        late = int(caused.argmax())
        if caused[late] < max(STRAGGLES * step, MOSTLY * np.delete(caused, late).max()):
            continue
        before = [_lines_before(stacks, *each) for each in zip(steps.windows, calls, arrivals.rows.T, strict=True)]
        line, at_line, reason = _late_line(late, before)
        waits.append(
            CollectiveWait(
                name=arrivals.name,
                site=stacks.relative(run.sites[arrivals.site]) if arrivals.site >= 0 else None,
                rank=steps.windows[late].rank,
                last=float((last == late).mean()),
                seconds=float(caused[late]) / NS_PER_S,
                before=line,
                at_line=at_line,
                reason=reason,
            )
        )
    return tuple(sorted(waits, key=lambda wait: -wait.seconds)[:_MAX_COLLECTIVES])


def _collectives(run: Run, window: Window) -> Table:
    """The collectives that the stepping thread called, from the begin of the program on, in order of time."""
    calls = thread_rows(run.calls, window)
    calls = calls[is_collective(run, calls)]
    return calls[np.argsort(calls["begin"], kind="stable")]


def _matched(run: Run, windows: Sequence[Window], calls: Sequence[Table]) -> Iterator[_Arrivals]:
    """The calls that belong together, by name and by the line of the first rank."""
    for name in np.unique(calls[0]["name"]).tolist():
        if run.names[name] in _POINT_TO_POINT:
            continue
        rows = [np.flatnonzero(each["name"] == name) for each in calls]
        count = min(map(len, rows))
        together = np.stack([each[:count] for each in rows], axis=1)
        begin, end = (
            np.stack([times(each[column][together[:, at]]) for at, each in enumerate(calls)], axis=1)
            for column in ("begin", "end")
        )
        measured = np.all([window.step_rows(begin[:, at]) >= 0 for at, window in enumerate(windows)], axis=0)
        overlap = begin.max(axis=1) <= end.min(axis=1)
        if not measured.any() or overlap[measured].mean() < NEARLY_ALL:
            continue
        sites = calls[0]["site"][together[:, 0]]
        for site in np.unique(sites[measured]).tolist():
            own = measured & overlap & (sites == site)
            yield _Arrivals(run.names[name], site, together[own], begin[own])


def _late_line(late: int, before: Sequence[Mapping[Site, float] | None]) -> tuple[Site | None, bool, Notice | None]:
    """The line of the late rank that `excess_line` finds beside ranks whose lines are known, or why there is none."""
    of_late, others = before[late], [lines for at, lines in enumerate(before) if at != late and lines is not None]
    if not of_late or not others:
        return None, False, Notice("few-samples-before")
    line, at_line = excess_line(0, [of_late, *others])
    return line, at_line, None if line else Notice("no-line-before")


def _lines_before(
    stacks: Stacks, window: Window, calls: Table, rows: npt.NDArray[np.int64]
) -> Mapping[Site, float] | None:
    """Seconds per step of each line between these calls and the collectives before them; None: they are not known."""
    begin, end = times(calls["begin"]), times(calls["end"])
    rows = rows[rows > 0]
    gaps = union(end[rows - 1], np.maximum(begin[rows], end[rows - 1]))
    samples = thread_rows(stacks.run.stacks, window)
    samples = samples[~stacks.in_recorder[samples["stack"]]]
    gap = np.searchsorted(gaps.begin, samples["begin"], "right") - 1
    within = (gap >= 0) & (samples["begin"] < gaps.end[gap]) if len(gaps) else np.zeros(len(samples), np.bool_)
    counts = Counter(samples["stack"][within].tolist())
    lines = defaultdict[Site, float](float)
    if (total := sum(counts.values())) < _MIN_SAMPLES:
        return {} if gaps.measure() < STRAGGLES * window.wall_ns else None
    for number, count in counts.items():
        if (site := stacks[number].site).file:
            lines[stacks.relative(site)] += count / total * gaps.measure() / len(window) / NS_PER_S
    return lines
