"""Divides the time of the stepping thread among lines of the user's code, and finds those without operators."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Intervals, union
from profiler.analyse.model.host import LibraryFunction, LineCost, OperatorLine, Period, TableGradient, UnmeasuredPeriod
from profiler.analyse.model.measures import HOST_CATEGORIES
from profiler.analyse.sampling.shares import ClassifiedSamples
from profiler.analyse.sampling.stacks import NUMBER, STRATA, WEIGHTED_TOGETHER, Stacks, sample_ns
from profiler.analyse.sampling.stages import NEVER, WELL_SAMPLED
from profiler.analyse.statistics import effective_sample_size, share_interval
from profiler.analyse.window import NS_PER_S, Window, process_rows, thread_rows
from profiler.run.code_origin import OURS, USER, code_owner, relative_path
from profiler.run.model import MadeObject, Run, Site, Table
from profiler.run.tables import COUNTED_LINES, COUNTED_STEPS, OPERATORS

_MOST_OPERATORS: Final = 1 / 6
"""Most of a line's time in small operators, as they were counted, with which the rest of the line counts. A choice:
they take up to three times as long beside other programs, and less than half of the line must be theirs even then."""
_MORE_ROUNDS: Final = 10
"""Times as much as was counted that a larger operator may take in other steps, such as one in a loop whose rounds were
few when they were counted. A choice."""
_MOST_LONGER: Final = 1.25
"""Times as long as the median step that the steps of a line's samples may be. Work that costs a tenth of all time in
every 6th step, the first that may lie outside of the counted ones, makes that step 1.6 times as long as others."""
_Numbers = npt.NDArray[Any]


class OutsideTorch:
    """Tells the lines that call hardly any operator. Operators are counted in a few steps, so a line that only rare,
    longer steps reach may call any. An operator of no line may be at each of them."""

    def __init__(self, stacks: Stacks, window: Window, operators: Collection[OperatorLine]) -> None:
        self._is_known = any(row.site for row in operators)
        if not self._is_known:
            return
        self._stacks = stacks
        rows, self._weight = stacks.weighted_samples(window)
        self._stack = rows["stack"]
        self._length = window.wall[window.step_rows(rows["begin"])]
        self._usual = _weighted_median(self._length, self._weight)
        self._seconds: defaultdict[tuple[str, int], float] = defaultdict(float)
        self._elsewhere = 0.0
        for row in operators:
            if row.is_backward:
                continue
            if row.site:
                seconds = row.small_seconds + _MORE_ROUNDS * (row.seconds - row.small_seconds)
                self._seconds[row.site.file, row.site.line] += seconds
            elif not row.caller:
                self._elsewhere += row.seconds
        if len(stacks.run.info.facts[OPERATORS]["lines"]) >= COUNTED_LINES:  # not all lines are kept
            self._elsewhere += min(row.seconds for row in operators)

    def has(self, site: Site, numbers: Collection[int], seconds: float) -> bool:
        """Return whether the line calls hardly any operator; False where that is not known.

        :param numbers: of the line's stacks.
        :param seconds: what the line takes per step.
        """
        if not self._is_known:
            return False
        place = self._stacks.relative(site)
        called = self._seconds.get((place.file, place.line), 0.0) + self._elsewhere
        return called <= _MOST_OPERATORS * seconds and not self.are_longer(numbers)

    def are_longer(self, numbers: Collection[int]) -> bool:
        """Return whether the median step of these stacks is longer than that of all samples, or not known."""
        chosen = np.isin(self._stack, list(numbers))
        if not self._weight[chosen].any():
            return True
        return _weighted_median(self._length[chosen], self._weight[chosen]) > _MOST_LONGER * self._usual


def _weighted_median(values: _Numbers, weight: _Numbers) -> float:
    order = np.argsort(values)
    sums = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(sums, sums[-1] / 2)])


# ---------------------------------------------------------------- lines

MIN_SHARE: Final = 0.0005
"""Share of the time below which a line is left out: 1/2000, as in a flame graph."""
_MIN_FUNCTION_SHARE: Final = 0.01
"""The same for a function of a library: rules ask for those with a twentieth of a step."""
_MAX_LINES: Final = 5


def line_costs(
    stacks: Stacks, samples: ClassifiedSamples | None, operators: Collection[OperatorLine] = ()
) -> tuple[LineCost, ...]:
    """Return the lines, the most seconds first; none where nothing was sampled. A stack may have no frame of the
    user's: the library's line counts only where no line is the user's.

    :param operators: as they were counted; without them it is not known which lines call any.
    """
    if samples is None:
        return ()
    lines: defaultdict[Site, list[int]] = defaultdict(list)
    for number, stack in samples.stacks.items():
        lines[stack.site].append(number)
    costs, outside = StackCosts(stacks, samples), OutsideTorch(stacks, samples.window, operators)
    least = MIN_SHARE * samples.window.wall_ns
    rows = []
    for site in _user_lines(stacks, lines):
        if costs.ns[lines[site]].sum() >= least and site.file:  # a stack without a frame is of no line
            row = costs.at(site, lines[site])
            is_outside = outside.has(site, lines[site], row.seconds_per_step)
            rows.append(replace(row, is_outside_torch=is_outside))
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.site)))


def library_functions(stacks: Stacks, samples: ClassifiedSamples | None) -> tuple[LibraryFunction, ...]:
    """Return the functions that are not the user's, below each line of the user's, the most seconds first. A line is
    the innermost one of the user's above the function. Of calls of a function within each other only the outermost
    counts."""
    if samples is None:
        return ()
    calls: defaultdict[tuple[Site, str, str], list[int]] = defaultdict(list)
    for number in samples.stacks:
        for (file, name), site in _library_calls(stacks, number).items():
            calls[site, file, name].append(number)
    costs = StackCosts(stacks, samples)
    least = _MIN_FUNCTION_SHARE * samples.window.wall_ns
    rows = [
        LibraryFunction(file, name, costs.at(site, numbers), costs.lines(numbers))
        for (site, file, name), numbers in calls.items()
        if costs.ns[numbers].sum() >= least
    ]
    return tuple(sorted(rows, key=lambda row: (-row.below.seconds_per_step, row.below.site, row.file, row.name)))


def _library_calls(stacks: Stacks, number: int) -> dict[tuple[str, str], Site]:
    """Map the file and name of each function of a library in a stack to the user's line above its outermost call."""
    calls, line = dict[tuple[str, str], Site](), None
    for site in stacks.run.stack_frames[number]:
        owner = code_owner(site.file, stacks.folders)
        if owner == USER:
            line = site
        elif line is not None and owner != OURS:
            calls.setdefault((relative_path(site.file, stacks.folders), site.function), line)
    return calls


class StackCosts:
    """The time of the stacks of a run, by category."""

    def __init__(self, stacks: Stacks, samples: ClassifiedSamples) -> None:
        self._stacks, self._samples, self._error = stacks, samples, ShareError(samples)
        columns = [np.bincount(samples.stack, samples.weight * column) for column in samples.line_shares.T]
        self.ns = np.stack(columns, axis=1)
        """ns of measured steps of each stack (rows) in each of HOST_CATEGORIES (columns)."""
        self._unrecorded = np.bincount(samples.stack, samples.weight * samples.unrecorded)
        self._counts = np.bincount(samples.stack, samples.ns)

    def at(self, site: Site, numbers: list[int]) -> LineCost:
        """Return what the stacks with these numbers cost at this line."""
        samples, scale = self._samples, 1 / len(self._samples.window) / NS_PER_S
        parts = self.ns[numbers].sum(axis=0)
        share = min(1.0, float(parts.sum()) / samples.window.wall_ns)
        below, above = self._error.of_stacks(numbers)
        calls = Counter[str]()
        for number in numbers:
            calls[samples.stacks[number].calls] += self.ns[number].sum()
        return LineCost(
            self._stacks.relative(site),
            most_frequent(calls),
            float(parts.sum()) * scale,
            share,
            max(0.0, share - below),
            min(1.0, share + above),
            max(1, round(float(self._counts[numbers].sum()) * samples.n / float(samples.ns.sum()))),
            {name: float(part) * scale for name, part in zip(HOST_CATEGORIES, parts, strict=True) if part > 0},
            float(self._unrecorded[numbers].sum()) * scale,
        )

    def lines(self, numbers: list[int]) -> tuple[Site, ...]:
        """Return the innermost lines of the user's in the stacks with these numbers, the most time first."""
        ns = Counter[Site]()
        for number in numbers:
            ns[self._stacks.relative(self._samples.stacks[number].site)] += self.ns[number].sum()
        return tuple(site for site, _ in ns.most_common())


def most_frequent(calls: Mapping[str, float]) -> str:
    """Return the function with the most time; of equal ones the last by name."""
    return max(calls, key=lambda name: (calls[name], name))


class ShareError:
    """The error of a line's share, by the samples of each group of strata that is weighted by itself."""

    def __init__(self, samples: ClassifiedSamples) -> None:
        groups = np.zeros(len(STRATA), np.int64)
        for number, names in enumerate(WEIGHTED_TOGETHER):
            groups[[NUMBER[name] for name in names]] = number
        group = groups[samples.stratum]
        self._samples = samples
        self._group = np.zeros(int(samples.stack.max()) + 1, np.int64)
        self._group[samples.stack] = group  # all samples of a stack have its stratum
        self._stack_ns, self._group_ns = samples.batches.sum_by(samples.stack), samples.batches.sum_by(group)
        self._weight = np.bincount(group, samples.weight)

    def of_stacks(self, stacks: list[int]) -> tuple[float, float]:
        """Return how far the share of these stacks may be below and above."""
        samples, below, above = self._samples, 0.0, 0.0
        groups = self._group[stacks]
        for number in np.unique(groups).tolist():
            part = self._stack_ns[stacks][groups == number].sum(axis=0)
            total = self._group_ns[number].sum()
            share, n = float(part.sum() / total), samples.n * float(total / self._group_ns.sum())
            size = effective_sample_size(part, self._group_ns[number], n, samples.batches.unsampled)
            low, high = share_interval(share, size)
            scale = float(self._weight[number]) / samples.window.wall_ns
            below, above = math.hypot(below, (share - low) * scale), math.hypot(above, (high - share) * scale)
        return below, above


# ---------------------------------------------------------------- time in which no step was measured


def startup_teardown(stacks: Stacks, window: Window) -> tuple[UnmeasuredPeriod, ...]:
    """Return the periods, in order of time, with the lines of the stepping thread that took most of each."""
    if not len(window):
        return ()
    samples = thread_rows(stacks.run.stacks, window)
    return tuple(
        UnmeasuredPeriod(period, spans.measure() / NS_PER_S, _period_lines(stacks, samples, spans))
        for period, spans in _periods(stacks.run, window, samples)
    )


def _periods(run: Run, window: Window, samples: Table) -> Iterator[tuple[Period, Intervals]]:
    """Yield the periods of the stepping process. The last one ends with the run or, if that is unknown, with the last
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
    """Return the steps that torch's profiler affected, from its start to the end of its writing."""
    trace = run.info.facts.get("trace")
    began, ended = (trace.get("began"), trace.get("ended")) if isinstance(trace, Mapping) else (None, None)
    if not isinstance(began, int):
        return np.zeros(len(steps), np.bool_)
    return np.asarray((steps["end"] > began) & (steps["begin"] < (ended if isinstance(ended, int) else NEVER)))


def _user_lines(stacks: Stacks, lines: Iterable[Site]) -> list[Site]:
    """Return the lines that are the user's; where there is none, all lines."""
    return [site for site in lines if stacks.is_user(site)] or list(lines)


def _period_lines(stacks: Stacks, samples: Table, spans: Intervals) -> tuple[LineCost, ...]:
    weight = sample_ns(samples, spans)
    ns, n = np.bincount(samples["stack"], weight), stacks.sample_count(samples, weight)
    lines: defaultdict[Site, Counter[str]] = defaultdict(Counter)
    for number in np.flatnonzero(ns).tolist():
        lines[stacks[number].site][stacks[number].calls] += ns[number]
    sampled, total = float(ns.sum()), spans.measure()
    scale = total / sampled if sampled >= WELL_SAMPLED * total else 1.0
    rows = []
    for site in _user_lines(stacks, lines):
        calls = lines[site]
        line_ns = float(calls.total())
        share = line_ns * scale / total
        low, high = share_interval(share, n)
        count, seconds = max(1, round(n * line_ns / sampled)), share * total / NS_PER_S
        rows.append(LineCost(stacks.relative(site), most_frequent(calls), seconds, share, low, high, count))
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.site))[:_MAX_LINES])


def operator_lines(stacks: Stacks) -> tuple[OperatorLine, ...]:
    """Return the operators of each line, for each of forward and backward, the most seconds first; empty if
    `agent.hooks.operators` did not count them."""
    fact = stacks.run.info.facts.get(OPERATORS)
    if not isinstance(fact, Mapping):
        return ()
    times = _counted_steps(stacks.run.steps, fact)
    sums: dict[tuple[Site | None, bool, str], np.ndarray[Any, np.dtype[np.float64]]] = {}
    for frames, is_backward, caller, *amounts in fact.get("lines", []):
        sites = (Site(*frame) for frame in frames)
        site = next((site for site in sites if stacks.is_user(site)), None)
        key = (stacks.relative(site) if site else None, bool(is_backward), str(caller))
        sums[key] = sums.get(key, np.zeros(4)) + times * np.array(amounts, np.float64)
    lines = [
        OperatorLine(*key, round(count), float(seconds), round(small), float(small_seconds))
        for key, (count, seconds, small, small_seconds) in sums.items()
    ]
    return tuple(sorted(lines, key=lambda line: -line.seconds))


def table_gradients(stacks: Stacks) -> tuple[TableGradient, ...]:
    """Return the gradients of tables of which a step looks up rows, the most seconds first."""
    fact = stacks.run.info.facts.get(OPERATORS)
    if not isinstance(fact, Mapping):
        return ()
    times, found = _counted_steps(stacks.run.steps, fact), list[TableGradient]()
    for frames, rows, taken, seconds in fact.get("tables", []):
        site = next((site for frame in frames if stacks.is_user(site := Site(*frame))), None)
        found.append(TableGradient(stacks.relative(site) if site else None, rows, times * taken, times * seconds))
    return tuple(sorted(found, key=lambda each: -each.seconds))


def made_objects(stacks: Stacks) -> dict[tuple[str, int], tuple[MadeObject, ...]]:
    """Return the objects that a line uses, with the lines that make them, by file and number of the line."""
    return {
        stacks.relative(Site(file, line, "")).place: tuple(
            each._replace(site=stacks.relative(each.site)) for each in objects
        )
        for (file, line), objects in stacks.run.made.items()
    }


def _counted_steps(steps: Table, fact: Mapping[str, Any]) -> float:
    """Return how many of the counted steps a step has. Where no marked step ended meanwhile, they are those of an
    optimizer. How long they took tells how many of them a marked step has, at least, since counting makes them
    longer."""
    begin, end, measured = fact.get("begin"), fact.get("end"), steps[steps["warmup"] == 0]
    if not isinstance(begin, int) or not isinstance(end, int) or end <= begin or not len(measured):
        return 1.0
    ends = steps["end"]
    if ((ends > begin) & (ends <= end)).any():
        return 1.0
    seconds = float((measured["end"] - measured["begin"]).mean())
    return max(1.0, seconds * COUNTED_STEPS / (end - begin))
