"""Puts the ledgers of several ranks side by side, with what their collectives cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import times, union
from profiler.analyse.model.host import LineCost
from profiler.analyse.model.measures import CORELESS_CATEGORIES, DEVICE_CATEGORIES, HOST_CATEGORIES, UNATTRIBUTED
from profiler.analyse.model.ranks import CollectiveWait, RankActivity, RankLedger, Straggler
from profiler.analyse.ranks import MOST, MOSTLY, STRAGGLES, RankSteps
from profiler.analyse.sampling.stacks import Stacks
from profiler.analyse.timing.breakdown import Strip
from profiler.analyse.timing.host_timeline import CODE
from profiler.analyse.window import LEVEL_LIGHT, NEARLY_ALL, NS_PER_S, Window, is_collective, thread_rows
from profiler.core.errors import Notice
from profiler.run.model import Run, Site, Table

ALIKE: Final = 0.5
"""A rank whose own work exceeds that of the others by this part of the straggler's lead is late as well."""
MAY_BE_WAITS: Final = ("waiting", "python", UNATTRIBUTED, "compute", "framework", "sync", "launch")
"""Categories that waits for other ranks may have been counted as, the most likely first."""
MAY_WAIT_FOR_DEVICE: Final = ("sync", "waiting")
"""The same where a device communicates: meanwhile the host need not wait."""
ON_CORE: Final = ("compute", "framework", "python")
"""Categories in which a thread is on a core."""
MORE_WORK: Final = 0.25
"""Part of the usual own work of the other ranks from which more work is the reason, also where the straggler waits even
longer for a core: a rank that has more to do waits for a core more often, too."""
MORE_WORK_THAN_WAIT: Final = 0.3
"""The same as a part of how much longer it waits for a core: beside three busy loops a thread waits three times as long
as it runs."""
UNIFORM: Final = 0.1
"""Largest difference between the shares of a category on balanced ranks, if one verdict holds for all."""
T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True)
class RankTime:
    """The time of one rank by category and by line."""

    ledger: Strip | None
    """None at level light."""
    lines: tuple[LineCost, ...]
    device: Mapping[str, float] = field(default_factory=dict)
    """Device category -> seconds per step; empty without recorded activities."""

    @property
    def is_sampled(self) -> bool:
        """Return whether its stacks were sampled; else the ledger says little of what it did."""
        return bool(self.lines)

    def categories(self, rows: npt.NDArray[np.int64]) -> dict[str, float]:
        """Return the seconds per step of each host category in these steps."""
        return _per_step(self.ledger.ns if self.ledger else None, rows)

    def in_backward(self, rows: npt.NDArray[np.int64]) -> dict[str, float]:
        """Return the seconds per step of each host category within the backward pass."""
        return _per_step(self.ledger.backward if self.ledger else None, rows)


def _per_step(ns: npt.NDArray[np.int64] | None, rows: npt.NDArray[np.int64]) -> dict[str, float]:
    """Return the seconds per step of each host category that is not 0 in these rows of a table (steps x categories)."""
    if ns is None or not len(rows):
        return {}
    sums = ns[rows].sum(axis=0) / len(rows) / NS_PER_S
    return {name: float(value) for name, value in zip(HOST_CATEGORIES, sums, strict=True) if value}


def with_rank_waits(
    ledger: Strip | None, steps: RankSteps, at: int, categories: Sequence[str] = MAY_BE_WAITS
) -> Strip | None:
    """Return the ledger of the rank in column `at` with at least its waits for other ranks as such.

    Without samples nothing divides the backward pass, and all of it counts as computing.

    :param categories: those that the waits may have been counted as. Their time in the backward pass is taken first.
    """
    if ledger is None or steps.waits is None:
        return ledger
    rows, ns, ranks = steps.rows[:, at], ledger.ns.copy(), CODE["ranks"]
    backward = np.zeros_like(ns) if ledger.backward is None else ledger.backward.copy()
    lacking = (steps.waits[:, at] - ns[rows, ranks]).sum()
    spread = dict(ledger.spread)
    for name in categories:
        possible = ns[rows, CODE[name]]
        moved = np.floor(possible * min(1.0, max(0.0, lacking) / max(1, possible.sum()))).astype(np.int64)
        ns[rows, CODE[name]] -= moved
        ns[rows, ranks] += moved
        within = np.minimum(moved, backward[rows, CODE[name]])
        backward[rows, CODE[name]] -= within
        backward[rows, ranks] += within
        lacking -= moved.sum()
        for changed, total in ((name, -float(moved.sum())), ("ranks", float(moved.sum()))):
            if changed in spread:
                spread[changed] = max(0.0, spread[changed][0] + total), max(0.0, spread[changed][1] + total)
    return replace(ledger, ns=ns, spread=spread, backward=None if ledger.backward is None else backward)


def rank_ledger(steps: RankSteps, times_by_rank: Sequence[RankTime], size: int) -> RankLedger:
    """Return the activity of each rank, and why the straggler is late.

    :param size: the number of ranks of the job.
    """
    activities = []
    for at, (window, time) in enumerate(zip(steps.windows, times_by_rank, strict=True)):
        rows = steps.rows[:, at]
        activities.append(
            RankActivity(
                rank=window.rank,
                pid=window.pid,
                steps=len(window),
                excluded=len(window) - len(steps.rows),
                step_time=float(window.wall[steps.rows[:, at]].mean() if len(steps.rows) else window.wall.mean())
                / NS_PER_S,
                own_work=None if steps.own is None else float(steps.own[:, at].mean()) / NS_PER_S,
                last=None if steps.last is None else float(steps.last[at]),
                categories=time.categories(rows),
            )
        )
    reason = None
    if len(steps.windows) == 1:
        reason = Notice("one-rank")
    elif not steps.synchronous:
        reason = Notice("ranks-not-synchronous")
    elif steps.own is None:
        reason = LEVEL_LIGHT
    straggler = None
    if steps.straggler is not None:
        straggler = _explain(steps, steps.straggler, activities, times_by_rank)
    analysed = steps.analysed.rank
    one = next(each for each in activities if each.rank == analysed)
    uniform = all(
        abs(each.categories.get(name, 0.0) - one.categories.get(name, 0.0)) <= UNIFORM * one.step_time
        for each in activities
        for name in HOST_CATEGORIES
    )
    uniform = uniform and straggler is None and reason is None
    return RankLedger(tuple(activities), analysed, steps.synchronous, straggler, reason, uniform, size)


def _explain(
    steps: RankSteps, leader: int, activities: Sequence[RankActivity], times_by_rank: Sequence[RankTime]
) -> Straggler:
    """Return the category of the straggler's time that exceeds that of the other ranks most, with its line."""
    assert steps.own is not None
    own = steps.own.mean(axis=0) / NS_PER_S
    typical = float(np.median(np.delete(own, leader)))
    lead = float(own[leader]) - typical
    exchanged = [
        time.in_backward(steps.rows[:, at]) if steps.lead_outside else {} for at, time in enumerate(times_by_rank)
    ]
    cpu = None if steps.cpu is None else _excess(leader, list(steps.cpu)) / NS_PER_S
    category, seconds, others = _category(leader, [each.categories for each in activities], exchanged, cpu)
    by_line = [
        {line.site: line.categories[category] for line in time.lines if line.categories.get(category)}
        for time in times_by_rank
    ]
    site, at_line = excess_line(leader, by_line)
    if (of_device := _device_category(leader, [time.device for time in times_by_rank])) is not None:
        (category, seconds, others), site = of_device, None
    if not times_by_rank[leader].is_sampled and any(time.is_sampled for time in times_by_rank):
        category, seconds, others, site = UNATTRIBUTED, 0.0, 0.0, None
    alone = site is not None and not any(
        _function(line.site) == _function(site) for time in _without(times_by_rank, leader) for line in time.lines
    )
    without_core = [sum(each.categories.get(name, 0.0) for name in CORELESS_CATEGORIES) for each in activities]
    late = [at for at in range(len(own)) if at != leader and own[at] - typical >= ALIKE * lead]
    return Straggler(
        rank=activities[leader].rank,
        lead=lead,
        category=category,
        seconds=seconds,
        others=others,
        site=site,
        at_line=at_line,
        alone=alone,
        alike=tuple(activities[at].rank for at in late),
        core=0.0 if category in CORELESS_CATEGORIES else max(0.0, _excess(leader, without_core)),
        cpu=0.0 if cpu is None else max(0.0, cpu),
    )


def _category(
    leader: int,
    by_rank: Sequence[Mapping[str, float]],
    exchanged: Sequence[Mapping[str, float]],
    cpu: float | None = None,
) -> tuple[str, float, float]:
    """Return the host category that explains the lead: its seconds per step on the straggler, and the others' median.

    :param exchanged: seconds of each category that do not explain it, because they lie where ranks wait.
    :param cpu: seconds of CPU time by which the straggler exceeds the others; None: not known. What runs on a core
        explains no more than that, whatever the samples of each rank find by chance.
    """
    seconds = by_rank[leader]
    others = {name: _median(each.get(name, 0.0) for each in _without(by_rank, leader)) for name in seconds}
    counted = [
        {name: max(0.0, value - left_out.get(name, 0.0)) for name, value in each.items()}
        for each, left_out in zip(by_rank, exchanged, strict=True)
    ]
    excess = {
        name: value - _median(each.get(name, 0.0) for each in _without(counted, leader))
        for name, value in counted[leader].items()
        if name != "ranks"
    }
    on_core = sum(max(0.0, excess.get(name, 0.0)) for name in ON_CORE)
    if cpu is not None and on_core > 0:
        excess |= {name: excess[name] * min(1.0, max(0.0, cpu) / on_core) for name in ON_CORE if name in excess}
    work = {name: value for name, value in excess.items() if name not in CORELESS_CATEGORIES and value > 0}
    usual = sum(value for name, value in others.items() if name not in (*CORELESS_CATEGORIES, "ranks"))
    core = sum(excess.get(name, 0.0) for name in CORELESS_CATEGORIES)
    named = work if sum(work.values()) > max(MORE_WORK * usual, MORE_WORK_THAN_WAIT * core) else excess
    category = max(named, key=lambda name: named[name], default=UNATTRIBUTED)
    return category, seconds.get(category, 0.0), others.get(category, 0.0)


def _excess(leader: int, values: Sequence[float]) -> float:
    """Return how far the leader's value exceeds the median of the others; below 0 where it is less."""
    return float(values[leader]) - _median(_without(values, leader))


def _device_category(leader: int, by_rank: Sequence[Mapping[str, float]]) -> tuple[str, float, float] | None:
    """Tell whether the device of the straggler computes or copies for longer; None where it is idle for longer, so
    that the host is the reason, and where no device was recorded."""
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


def excess_line(leader: int, by_rank: Sequence[Mapping[Site, float]]) -> tuple[Site | None, bool]:
    """Return the line at which the straggler spends most time beyond the other ranks, and whether it is more than half
    of that; where only a function has as much, its largest line; else None.

    :param by_rank: seconds by line of each rank.
    """
    excess = {
        site: seconds - _median(lines.get(site, 0.0) for lines in _without(by_rank, leader))
        for site, seconds in by_rank[leader].items()
    }
    excess = {site: seconds for site, seconds in excess.items() if seconds > 0}
    if not excess:
        return None, False
    functions: defaultdict[tuple[str, str], float] = defaultdict(float)
    for site, seconds in excess.items():
        functions[_function(site)] += seconds
    largest, total = max(excess, key=lambda site: (excess[site], site)), sum(excess.values())
    if excess[largest] > MOST * total:
        return largest, True
    function = max(functions, key=lambda key: (functions[key], key))
    if functions[function] <= MOST * total:
        return None, False
    within = [site for site in excess if _function(site) == function]
    return max(within, key=lambda site: (excess[site], site)), False


def _function(site: Site) -> tuple[str, str]:
    return site.file, site.function


def _without(items: Sequence[T], leader: int) -> list[T]:
    return [item for at, item in enumerate(items) if at != leader]


def _median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


# ---------------------------------------------------------------- collectives

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
    """Return the collectives in which a rank makes the others wait for at least STRAGGLES of a step, the longest first;
    not those in which another rank does so for nearly as long, since then the ranks only take turns in being late."""
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
    """Return the collectives that the stepping thread called, from the begin of the program on, in order of time."""
    calls = thread_rows(run.calls, window)
    calls = calls[is_collective(run, calls)]
    return calls[np.argsort(calls["begin"], kind="stable")]


def _matched(run: Run, windows: Sequence[Window], calls: Sequence[Table]) -> Iterator[_Arrivals]:
    """Yield the calls that belong together, by name and by the line of the first rank."""
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
    """Return the line of the late rank that `excess_line` finds beside ranks whose lines are known, or why there is
    none."""
    of_late, others = before[late], [lines for at, lines in enumerate(before) if at != late and lines is not None]
    if not of_late or not others:
        return None, False, Notice("few-samples-before")
    line, at_line = excess_line(0, [of_late, *others])
    return line, at_line, None if line else Notice("no-line-before")


def _lines_before(
    stacks: Stacks, window: Window, calls: Table, rows: npt.NDArray[np.int64]
) -> Mapping[Site, float] | None:
    """Return the seconds per step of each line between these calls and the collectives before them; None: they are not
    known."""
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
