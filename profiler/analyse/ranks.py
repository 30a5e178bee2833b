"""Tells which rank makes the others wait: the own work of each rank in each step, and the rank that has most of it.

In synchronous training the steps of all ranks take equally long, because each rank waits for the slowest one in
collectives. So the straggler is not the rank with the longest step but the one that waits least.

The own work of a rank in a step is the step without its waits for other ranks. Ranks wait where they exchange data: in
the backward pass (DDP reduces gradients inside of it), in collectives that the program calls, and in calls that block
on a device, or, where activities of a device were recorded, in its communication. Two bounds tell how much of that time
is a wait, and the larger one counts:

- A rank exchanges data for longer than the fastest rank in the same step: the excess is a wait. This needs no clock of
  the threads, but it does not see a rank that works for longer inside the exchange.
- The process was blocked for longer than the rest of the step lasted: so much of the exchange was blocked. This sees a
  slow backward pass, whose rank has a CPU while the others are blocked.

A wait is never longer than the thread was blocked: time in which it could have run and had no core is its own. Where
ranks outnumber cores, the straggler must lead without that time too: which of them lacks a core changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats, Times, covered_within, times, union
from profiler.analyse.timing.scheduler import step_delays
from profiler.analyse.window import (
    NEARLY_ALL,
    Window,
    common_steps,
    device_kind,
    has_name,
    in_lockstep,
    is_collective,
    process_rows,
    thread_rows,
)
from profiler.run.model import Run, StepKind, Table
from profiler.run.tables import ActivityKind

LOCKSTEP: Final = 1.5
"""A rank that waits for the others in every step is at most one step ahead of them, and may be nearly one: where its
last gradients are reduced early in the backward pass, it ends its step while the straggler still computes."""
STRAGGLES: Final = 0.05
"""Share of a step from which the work of one rank beyond that of the others is worth naming."""
MOSTLY: Final = 3
"""The straggler must lead the others by this many times as much time as it is behind them in other steps. In a balanced
run with noise the leader changes from step to step, and the two are about equal."""
ENOUGH_STEPS: Final = 10
UNUSUAL_STEPS: Final = 1
"""Steps that are left out, those with the largest lead: one hiccup of the machine makes no straggler. Of fewer
than ENOUGH_STEPS none is left out."""
ON_CPU: Final = ("gloo:", "mpi:")
"""Beginnings of the names of collectives that run on threads of the CPU, in traces of torch's profiler."""

SAME_END: Final = 0.25
SAME_END_NS: Final = 1_000_000
"""A collective ends on all ranks at the same time, but for what its last messages take: a small part of its length, or
about 1 ms with gloo, whose threads wait for a core."""
MOST: Final = 0.5
"""Part of the excess of a category from which a line, or a function, is named."""


@dataclass(frozen=True, eq=False, slots=True)
class RankSteps:
    """The steps that all ranks measured."""

    windows: tuple[Window, ...]
    """The measured window of each rank, by rank."""
    rows: npt.NDArray[np.int64]
    """The row of each common step in each window (steps x ranks)."""
    synchronous: bool
    """Whether the ranks wait for each other: their steps end together."""
    own: Floats | None
    """ns of own work of each rank in each common step; None where it was not recorded."""
    straggler: int | None
    """Position in `windows` of the rank that makes the others wait; None if there is none."""
    last: Floats | None = None
    """Share of the collectives, or of the steps, in which each rank was the last."""
    lead_outside: bool = False
    """Whether most of the straggler's lead lies where ranks do not exchange data, so that they do not wait there."""
    waits: Floats | None = None
    """ns in which each rank waited for others in each common step; None where it was not recorded."""
    cpu: Floats | None = None
    """Mean ns of CPU time of each rank's stepping thread in the common steps; None where it was not recorded, or where
    a thread spins while it waits."""

    @property
    def analysed(self) -> Window:
        """Return the rank that stands for the run: the straggler, of ranks that do not wait for each other the slowest
        one, else the lowest."""
        if self.straggler is not None:
            return self.windows[self.straggler]
        if not self.synchronous and len(self.windows) > 1:
            return max(self.windows, key=lambda window: (float(window.wall.mean()), -window.rank))
        return self.windows[0]


def rank_steps(run: Run, windows: tuple[Window, ...]) -> RankSteps:
    """Align the steps of all ranks, and find the rank that makes the others wait."""
    if len(windows) < 2:
        return RankSteps(windows, np.arange(len(windows[0]))[:, None], synchronous=False, own=None, straggler=None)
    rows = common_steps(windows)
    communications = [_communication(run, window) for window in windows]
    if not all(len(each.name) for each in communications):
        communications = []
    # the clocks of several machines differ, but ranks that communicate wait for each other
    synchronous = bool(communications) or in_lockstep(windows, LOCKSTEP)
    if not len(rows) or not synchronous or run.info.level == "light":
        return RankSteps(windows, rows, synchronous, own=None, straggler=None)
    parts = [
        communications[at].in_steps(window) if communications else _exchanges(run, window)
        for at, window in enumerate(windows)
    ]
    exchange = np.stack([part[rows[:, at]] for at, part in enumerate(parts)], axis=1)
    walls = np.stack([window.wall[rows[:, at]] for at, window in enumerate(windows)], axis=1).astype(np.float64)
    if run.step is not None and run.step.kind is StepKind.WHOLE_TRACE:  # the traces began at different times
        walls[:] = walls.min(axis=1, keepdims=True)
    own = _own_work(run, windows, rows, walls, exchange, alone=not communications)
    last = _shares_of_last(communications) if communications else None
    if last is None:
        last = np.bincount(own.argmax(axis=1), minlength=len(windows)) / len(own)
    # which rank lacks a core is no property of a rank where they outnumber the cores
    straggler = find_straggler(own - _shared_core_waits(run, windows, rows), float(walls.max(axis=1).mean()))
    outside = straggler is not None and _lead(walls - exchange, straggler) > MOST * _lead(own, straggler)
    means = np.array([window.steps["thread_cpu"][rows[:, at]].mean() for at, window in enumerate(windows)])
    cpu = means if device_kind(run) == "cpu" and means.min() > 0 else None
    return RankSteps(windows, rows, synchronous, own, straggler, last, outside, walls - own, cpu)


def _lead(ns: Floats, leader: int) -> float:
    """Return the ns per step by which the rank in column `leader` exceeds the median of the others."""
    means = ns.mean(axis=0)
    return float(means[leader] - np.median(np.delete(means, leader)))


def find_straggler(own: Floats, step: float) -> int | None:
    """Return the column of the rank with most own work, if that is no chance; None else.

    :param own: ns of own work (steps x ranks).
    :param step: ns of a mean step.
    """
    leader = int(own.mean(axis=0).argmax())
    typical = np.median(np.delete(own, leader, axis=1), axis=1)
    lead = np.sort(own[:, leader] - typical)
    lead = lead[:-UNUSUAL_STEPS] if len(lead) >= ENOUGH_STEPS else lead
    ahead, behind = float(lead[lead > 0].sum()), float(-lead[lead < 0].sum())
    if min(lead.mean(), _lead(own, leader)) < STRAGGLES * step or ahead < MOSTLY * behind:
        return None
    return leader


def _shared_core_waits(run: Run, windows: Sequence[Window], rows: npt.NDArray[np.int64]) -> Floats:
    """Return the ns of each step in which each rank had no core, where ranks outnumber cores; else 0 (steps x
    ranks)."""
    facts, host = run.info.facts, run.info.host
    # in runs without `rank_cores` each rank may be bound to cores of its own, which are all that it counts
    counts = [facts["rank_cores"]] if "rank_cores" in facts else [facts.get("cores"), host.get("cores")]
    cores = max((count for count in counts if isinstance(count, int)), default=0)
    waits = np.zeros(rows.shape)
    if 0 < cores < len(windows):
        for at, window in enumerate(windows):
            delays = step_delays(run, window)
            waits[:, at] = 0.0 if delays is None else delays[rows[:, at]]
    return waits


def _own_work(
    run: Run, windows: Sequence[Window], rows: npt.NDArray[np.int64], walls: Floats, exchange: Floats, *, alone: bool
) -> Floats:
    """Return the ns of own work (steps x ranks).

    :param walls: ns of the steps.
    :param alone: whether communication was not recorded by itself: then clocks of threads bound the waits.
    """
    blocked, possible = np.zeros(rows.shape), np.full(rows.shape, np.inf)
    for at, window in enumerate(windows if alone else ()):
        low, high = _blocked(run, window)
        blocked[:, at], possible[:, at] = low[rows[:, at]], high[rows[:, at]]
    waits = np.maximum(exchange - exchange.min(axis=1, keepdims=True), blocked - (walls - exchange))
    return np.asarray(walls - np.clip(waits, 0, np.minimum(exchange, possible)))


def _exchanges(run: Run, window: Window) -> Floats:
    """Return the ns of each step in which the stepping thread exchanged data with other ranks or waited for a
    device."""
    regions, calls = thread_rows(run.regions, window), thread_rows(run.calls, window)
    backward = regions[has_name(run, regions, "backward")]
    collectives = calls[is_collective(run, calls)]
    blocked = calls[calls["blocked"] > 0]
    begin = (times(backward["begin"]), times(collectives["begin"]), times(blocked["end"]) - times(blocked["blocked"]))
    end = (times(table["end"]) for table in (backward, collectives, blocked))
    spans = union(np.concatenate(begin), np.concatenate([*end]))
    return covered_within(spans, window.begin, window.end).astype(np.float64)


def _blocked(run: Run, window: Window) -> tuple[Floats, Floats]:
    """Return the ns of each step in which the stepping thread was blocked: at least, since no thread of the process was
    on a core, and at most. A thread that waits for a core is not blocked. A host that waits for CUDA spins, so nothing
    bounds it."""
    delays = step_delays(run, window)
    in_process, in_thread = (window.steps[name].astype(np.float64) for name in ("process_cpu", "thread_cpu"))
    runnable = np.zeros(len(window)) if delays is None else delays.astype(np.float64)
    least = np.maximum(0.0, window.wall - in_process - runnable)
    most = np.maximum(0.0, window.wall - in_thread - runnable)
    if not in_process.any():
        least[:] = 0.0
    if delays is None or device_kind(run) == "cuda":
        most[:] = np.inf
    return least, most


@dataclass(frozen=True, eq=False, slots=True)
class _Communication:
    """The recorded communication of a rank, in order of time: it begins when this rank arrives, and ends on all ranks
    at about the same time."""

    begin: Times
    end: Times
    name: Times

    def in_steps(self, window: Window) -> Floats:
        """Return the ns of each step in which there was communication."""
        return covered_within(union(self.begin, self.end), window.begin, window.end).astype(np.float64)


def _communication(run: Run, window: Window) -> _Communication:
    """Return what a device communicated; without any, what the threads of a communication library did on the CPU."""
    rows: Table = process_rows(run.activities, window)
    rows = rows[rows["kind"] == ActivityKind.COMMUNICATION]
    if not len(rows):
        regions = process_rows(run.regions, window)
        numbers = [number for number, name in enumerate(run.names) if name.startswith(ON_CPU)]
        rows = regions[np.isin(regions["name"], numbers)]
    rows = rows[np.argsort(rows["begin"], kind="stable")]
    rows = rows[window.step_rows(rows["begin"]) >= 0]
    return _Communication(times(rows["begin"]), times(rows["end"]), times(rows["name"]))


def _shares_of_last(communications: Sequence[_Communication]) -> Floats | None:
    """Return the share of the collectives in which each rank arrived last, so that it waited least; None without any.

    The n-th collectives of all ranks belong together if their ends differ by the same time, that of the clocks.
    """
    first = communications[0]
    if not all(len(each.name) and np.array_equal(each.name, first.name) for each in communications):
        return None
    lengths = np.stack([each.end - each.begin for each in communications], axis=1)
    ends = np.stack([each.end - first.end for each in communications], axis=1)
    apart = np.abs(ends - np.median(ends, axis=0)).max(axis=1)
    if np.quantile(apart, NEARLY_ALL) > max(SAME_END_NS, SAME_END * float(np.median(lengths))):
        return None  # parts of the traces are missing
    return np.bincount(lengths.argmin(axis=1), minlength=len(communications)) / len(lengths)
