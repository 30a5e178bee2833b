"""Which rank makes the others wait: the own work of each rank in each step, and the rank that has most of it.

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

A wait is never longer than the thread was blocked: time in which it could have run and had no core is its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Times, covered_within, times, union
from profiler.analyse.model import DEVICE_CATEGORIES, HOST_CATEGORIES, LineCost, RankActivity, RankLedger, Straggler
from profiler.analyse.timing.breakdown import Ledger
from profiler.analyse.timing.scheduler import step_delays
from profiler.analyse.window import (
    LEVEL_LIGHT,
    NEARLY_ALL,
    NS_PER_S,
    Window,
    common_steps,
    device_kind,
    has_name,
    in_lockstep,
    is_collective,
    process_rows,
    thread_rows,
)
from profiler.core.notice import Notice
from profiler.run.model import Run, Site, StepKind, Table
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

ALIKE: Final = 0.5
"""A rank whose own work exceeds that of the others by this part of the straggler's lead is late as well."""
SAME_END: Final = 0.25
SAME_END_NS: Final = 1_000_000
"""A collective ends on all ranks at the same time, but for what its last messages take: a small part of its length, or
about 1 ms with gloo, whose threads wait for a core."""
MAY_BE_WAITS: Final = ("waiting", "python", "unattributed", "compute", "framework", "sync", "launch")
"""Categories that waits for other ranks may have been counted as, the most likely first."""
SCHEDULER: Final = ("core", "throttled")
MORE_WORK: Final = 0.25
"""Part of the usual own work of the other ranks from which more work is the reason, also where the straggler waits even
longer for a core: a rank that has more to do waits for a core more often, too."""
UNIFORM: Final = 0.1
"""Largest difference between the shares of a category on balanced ranks, if one verdict holds for all."""
MOST: Final = 0.5
"""Part of the excess of a category from which a line, or a function, is named."""
Floats = npt.NDArray[np.float64]
T = TypeVar("T")


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

    @property
    def analysed(self) -> Window:
        """The rank that stands for the run: the straggler, of ranks that do not wait for each other the slowest one,
        else the lowest."""
        if self.straggler is not None:
            return self.windows[self.straggler]
        if not self.synchronous and len(self.windows) > 1:
            return max(self.windows, key=lambda window: (float(window.wall.mean()), -window.rank))
        return self.windows[0]


def rank_steps(run: Run, windows: tuple[Window, ...]) -> RankSteps:
    """Align the steps of all ranks, and find the rank that makes the others wait."""
    if len(windows) < 2:
        return RankSteps(windows, np.zeros((0, 1), np.int64), synchronous=False, own=None, straggler=None)
    rows = common_steps(windows)
    communications = [_communication(run, window) for window in windows]
    if not all(len(each.name) for each in communications):
        communications = []
    # the clocks of several machines differ, but ranks that communicate wait for each other
    synchronous = bool(communications) or in_lockstep(windows, LOCKSTEP)
    if not len(rows) or not synchronous or run.info.level == "light":
        return RankSteps(windows, rows, synchronous, own=None, straggler=None)
    own = _own_work(run, windows, rows, communications)
    last = _shares_of_last(communications) if communications else None
    if last is None:
        last = np.bincount(own.argmax(axis=1), minlength=len(windows)) / len(own)
    return RankSteps(windows, rows, synchronous, own, find_straggler(own), last)


def find_straggler(own: Floats) -> int | None:
    """The column of the rank with most own work, if that is no chance; None else.

    :param own: ns of own work (steps x ranks).
    """
    leader = int(own.mean(axis=0).argmax())
    typical = np.median(np.delete(own, leader, axis=1), axis=1)
    lead = np.sort(own[:, leader] - typical)
    lead = lead[:-UNUSUAL_STEPS] if len(lead) >= ENOUGH_STEPS else lead
    ahead, behind = float(lead[lead > 0].sum()), float(-lead[lead < 0].sum())
    step = float(own.max(axis=1).mean())
    if lead.mean() < STRAGGLES * step or ahead < MOSTLY * behind:
        return None
    return leader


def _own_work(
    run: Run,
    windows: Sequence[Window],
    rows: npt.NDArray[np.int64],
    communications: Sequence[_Communication],
) -> Floats:
    """ns of own work (steps x ranks).

    :param communications: of each rank; empty where communication was not recorded by itself.
    """
    exchange = np.zeros(rows.shape)
    blocked, walls = np.zeros(rows.shape), np.zeros(rows.shape)
    possible = np.full(rows.shape, np.inf)
    for at, window in enumerate(windows):
        steps = rows[:, at]
        part = communications[at].in_steps(window) if communications else _exchanges(run, window)
        exchange[:, at], walls[:, at] = part[steps], window.wall[steps]
        if not communications:
            low, high = _blocked(run, window)
            blocked[:, at], possible[:, at] = low[steps], high[steps]
    if run.step is not None and run.step.kind is StepKind.WHOLE_TRACE:  # the traces began at different times
        walls[:] = walls.min(axis=1, keepdims=True)
    waits = np.maximum(exchange - exchange.min(axis=1, keepdims=True), blocked - (walls - exchange))
    return np.asarray(walls - np.clip(waits, 0, np.minimum(exchange, possible)))


def _exchanges(run: Run, window: Window) -> Floats:
    """ns of each step in which the stepping thread exchanged data with other ranks or waited for a device."""
    regions, calls = thread_rows(run.regions, window), thread_rows(run.calls, window)
    backward = regions[has_name(run, regions, "backward")]
    collectives = calls[is_collective(run, calls)]
    blocked = calls[calls["blocked"] > 0]
    begin = (times(backward["begin"]), times(collectives["begin"]), times(blocked["end"]) - times(blocked["blocked"]))
    end = (times(table["end"]) for table in (backward, collectives, blocked))
    spans = union(np.concatenate(begin), np.concatenate([*end]))
    return covered_within(spans, window.begin, window.end).astype(np.float64)


def _blocked(run: Run, window: Window) -> tuple[Floats, Floats]:
    """ns of each step in which the stepping thread was blocked: at least, since no thread of the process was on a core,
    and at most. A thread that waits for a core is not blocked. A host that waits for CUDA spins, so nothing bounds it.
    """
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
        """ns of each step in which there was communication."""
        return covered_within(union(self.begin, self.end), window.begin, window.end).astype(np.float64)


def _communication(run: Run, window: Window) -> _Communication:
    """What a device communicated; without any, what the threads of a communication library did on the CPU."""
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
    """The share of the collectives in which each rank arrived last, so that it waited least; None without any.

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


# ---------------------------------------------------------------- the ledger by rank


@dataclass(frozen=True, eq=False, slots=True)
class RankTime:
    """The time of one rank by category and by line."""

    ledger: Ledger | None
    """None at level light."""
    lines: tuple[LineCost, ...]
    device: Mapping[str, float] = field(default_factory=dict)
    """Device category -> seconds per step; empty without recorded activities."""

    def categories(self, rows: npt.NDArray[np.int64], waits: float) -> dict[str, float]:
        """Seconds per step of each host category in these steps, of which at least `waits` are waits for ranks.

        Without samples nothing divides the backward pass, and all of it counts as computing.
        """
        if self.ledger is None or not len(rows):
            return {}
        sums = self.ledger.ns[rows].sum(axis=0) / len(rows) / NS_PER_S
        seconds = {name: float(value) for name, value in zip(HOST_CATEGORIES, sums, strict=True) if value}
        for name in MAY_BE_WAITS:
            moved = min(seconds.get(name, 0.0), waits - seconds.get("ranks", 0.0))
            if moved > 0:
                seconds[name] -= moved
                seconds["ranks"] = seconds.get("ranks", 0.0) + moved
        return {name: value for name, value in seconds.items() if value}


def rank_ledger(steps: RankSteps, times_by_rank: Sequence[RankTime], size: int) -> RankLedger:
    """The activity of each rank, and why the straggler is late.

    :param size: the number of ranks of the job.
    """
    activities = []
    waits = None if steps.own is None else _walls(steps).mean(axis=0) / NS_PER_S - steps.own.mean(axis=0) / NS_PER_S
    for at, (window, time) in enumerate(zip(steps.windows, times_by_rank, strict=True)):
        activities.append(
            RankActivity(
                rank=window.rank,
                pid=window.pid,
                steps=len(window),
                excluded=len(window) - len(steps.rows),
                step_time=window.per_step(window.wall_ns),
                own_work=None if steps.own is None else float(steps.own[:, at].mean()) / NS_PER_S,
                last=None if steps.last is None else float(steps.last[at]),
                categories=time.categories(steps.rows[:, at], 0.0 if waits is None else float(waits[at])),
            )
        )
    reason = None
    if not steps.synchronous:
        reason = Notice("ranks-not-synchronous")
    elif steps.own is None:
        reason = LEVEL_LIGHT
    straggler = None
    if steps.straggler is not None:
        straggler = _explain(steps, steps.straggler, activities, times_by_rank)
    analysed = steps.analysed.rank
    uniform = straggler is None and reason is None and _uniform(activities, analysed)
    return RankLedger(tuple(activities), analysed, steps.synchronous, straggler, reason, uniform, size)


def _uniform(activities: Sequence[RankActivity], analysed: int) -> bool:
    """Whether each category takes about the same share of the step on all ranks."""
    one = next(each for each in activities if each.rank == analysed)
    return all(
        abs(each.categories.get(name, 0.0) - one.categories.get(name, 0.0)) <= UNIFORM * one.step_time
        for each in activities
        for name in HOST_CATEGORIES
    )


def _walls(steps: RankSteps) -> Floats:
    """ns of each common step of each rank (steps x ranks)."""
    walls = [window.wall[steps.rows[:, at]] for at, window in enumerate(steps.windows)]
    return np.stack(walls, axis=1).astype(np.float64)


def _explain(
    steps: RankSteps, leader: int, activities: Sequence[RankActivity], times_by_rank: Sequence[RankTime]
) -> Straggler:
    """The category of the straggler's time that exceeds that of the other ranks most, with its line."""
    assert steps.own is not None
    own = steps.own.mean(axis=0) / NS_PER_S
    typical = float(np.median(np.delete(own, leader)))
    lead = float(own[leader]) - typical
    category, seconds, others = _category(leader, [each.categories for each in activities])
    site, at_line = _excess_line(leader, times_by_rank, category)
    if (of_device := _device_category(leader, [time.device for time in times_by_rank])) is not None:
        (category, seconds, others), site = of_device, None
    late = [at for at in range(len(own)) if at != leader and own[at] - typical >= ALIKE * lead]
    return Straggler(
        rank=activities[leader].rank,
        lead=lead,
        category=category,
        seconds=seconds,
        others=others,
        site=site,
        at_line=at_line,
        alike=tuple(activities[at].rank for at in late),
        core=0.0 if category in SCHEDULER else _excess_of(SCHEDULER, leader, [each.categories for each in activities]),
    )


def _category(leader: int, by_rank: Sequence[Mapping[str, float]]) -> tuple[str, float, float]:
    """The host category that explains the lead: its seconds per step on the straggler, and the others' median."""
    seconds = by_rank[leader]
    others = {name: _median(each.get(name, 0.0) for each in _without(by_rank, leader)) for name in seconds}
    excess = {name: seconds[name] - others[name] for name in seconds if name != "ranks"}
    work = {name: value for name, value in excess.items() if name not in SCHEDULER and value > 0}
    usual = sum(value for name, value in others.items() if name not in (*SCHEDULER, "ranks"))
    named = work if sum(work.values()) > MORE_WORK * usual else excess
    category = max(named, key=lambda name: named[name], default="unattributed")
    return category, seconds.get(category, 0.0), others.get(category, 0.0)


def _excess_of(names: Iterable[str], leader: int, by_rank: Sequence[Mapping[str, float]]) -> float:
    """Seconds per step of these categories beyond the median of the other ranks; 0 where there are less."""
    sums = [sum(each.get(name, 0.0) for name in names) for each in by_rank]
    return max(0.0, sums[leader] - _median(_without(sums, leader)))


def _device_category(leader: int, by_rank: Sequence[Mapping[str, float]]) -> tuple[str, float, float] | None:
    """Whether the device of the straggler computes or copies for longer; None where it is idle for longer, so that the
    host is the reason, and where no device was recorded."""
    if not all(by_rank):
        return None
    excess = {
        name: by_rank[leader].get(name, 0.0) - _median(each.get(name, 0.0) for each in _without(by_rank, leader))
        for name in DEVICE_CATEGORIES
        if name != "communication"
    }
    name = max(excess, key=lambda name: excess[name])
    seconds = by_rank[leader].get(name, 0.0)
    return None if name == "idle" else (f"device {name}", seconds, seconds - excess[name])


def _excess_line(leader: int, times_by_rank: Sequence[RankTime], category: str) -> tuple[Site | None, bool]:
    """The line at which the straggler spends most time of a category beyond the other ranks, and whether it is more
    than half of that; where only a function has as much, its largest line; else None."""
    by_rank = [_seconds_by_line(time.lines, category) for time in times_by_rank]
    excess = {
        site: seconds - _median(lines.get(site, 0.0) for lines in _without(by_rank, leader))
        for site, seconds in by_rank[leader].items()
    }
    excess = {site: seconds for site, seconds in excess.items() if seconds > 0}
    if not excess:
        return None, False
    functions: defaultdict[tuple[str, str], float] = defaultdict(float)
    for site, seconds in excess.items():
        functions[site.file, site.function] += seconds
    largest, total = max(excess, key=lambda site: (excess[site], site)), sum(excess.values())
    if excess[largest] > MOST * total:
        return largest, True
    function = max(functions, key=lambda key: (functions[key], key))
    if functions[function] <= MOST * total:
        return None, False
    within = [site for site in excess if (site.file, site.function) == function]
    return max(within, key=lambda site: (excess[site], site)), False


def _seconds_by_line(lines: Iterable[LineCost], category: str) -> dict[Site, float]:
    return {line.site: line.categories[category] for line in lines if line.categories.get(category)}


def _without(items: Sequence[T], leader: int) -> list[T]:
    return [item for at, item in enumerate(items) if at != leader]


def _median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))
