"""Counters of the candidate compared to those of the base: exactly where they are constant, else by range."""

from __future__ import annotations

import difflib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from profiler.analyse.timing.counters import MIGHT_SYNC
from profiler.check.model import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    STATES,
    Change,
    Counted,
    CounterLine,
    GateResult,
    Limit,
    Limits,
)
from profiler.core.errors import ProfilerError
from profiler.core.metrics import COUNTERS
from profiler.core.notice import Notice

GATED: Final = tuple(counter.name for counter in COUNTERS if counter.gated)
"""Counters that may not rise even if no limit names them. Other counters of a program are shown, and checked only where
a limit names them: more of them may well be better."""
UNGATED: Final = (MIGHT_SYNC,)
"""Counters of the hooks that are checked only where a limit names them."""
EVERY: Final = "*"
WIDTHS: Final = 3.0
"""A counter that varies FAILs only where all processes of the candidate are above the base's range by more than so many
times the wider of both sides' ranges. Without any difference that is so for 1.3% of such counters with two processes a
side and 0.03% with three, whether their amounts are spread as a normal, an exponential or a log-normal distribution
(400,000 draws each). What varies and happened to be the same in all processes of the base is taken for constant: with
two a side, of a counter that is higher in a share p of processes, p^2 (1-p)^2 FAIL, 0.8% at p = 10% and 6% at most."""
SPREAD: Final = 3.0
"""... and only by more than so many standard deviations of a Poisson count as large: a few events more or less."""
WORKER_BATCHES: Final = 2.0
"""Batches by which the recorded work of a loader's workers may differ: the last one of an epoch may be smaller."""
STEP, WORKER = "step", "worker"

_REL_TOL: Final = 1e-12
"""For amounts that went through a division; one byte among terabytes is a difference."""
_ABS_TOL: Final = 1e-9


@dataclass(frozen=True, slots=True)
class _Side:
    """One counter in the processes of a side."""

    totals: tuple[float, ...]
    steps: tuple[int, ...]

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest, per step."""
        per_step = [total / steps for total, steps in zip(self.totals, self.steps, strict=True)]
        return min(per_step), max(per_step)

    @property
    def width(self) -> float:
        low, high = self.range
        return 0.0 if math.isclose(low, high, rel_tol=_REL_TOL, abs_tol=_ABS_TOL) else high - low

    @property
    def constant(self) -> bool:
        return not self.width


def compare(base: Sequence[Counted], candidate: Sequence[Counted], limits: Limits) -> tuple[CounterLine, ...]:
    """A line for every counter of either side, those of the step first.

    A counter that only the candidate has counts from 0. One that only the base has is an error: had its hooks been
    installed, it would be there with a 0. Where a side ran without a device, a counter that needs one is left out if
    the other side counted none of it either, and else INCONCLUSIVE.

    :raises ProfilerError: a side is empty, a counter is missing, or limits name a counter that does not exist.
    """
    if not base or not candidate:
        raise ProfilerError("there is nothing to compare: a side has no process that was counted")
    processes = (*base, *candidate)
    _check_names(processes, limits)
    names = _ordered({name for process in processes for name in process.totals})
    names = [name for name in names if not _unused_without_device(name, base, candidate)]
    lines = [_line(name, STEP, base, candidate, limits) for name in names]
    in_workers = {name for process in processes for name, amount in process.workers.items() if amount}
    return (*lines, *(_line(name, WORKER, base, candidate, limits) for name in _ordered(in_workers)))


def _check_names(processes: Sequence[Counted], limits: Limits) -> None:
    """A limit for a misspelt counter would silently have no effect."""
    counted = {name for process in processes for name in (*process.totals, *process.workers)}
    for key, names in (("limits", limits.counters), ("ignore", limits.ignore)):
        for name in names:
            if name != EVERY and name not in counted and name not in GATED and name not in UNGATED:
                raise ProfilerError(
                    f"{key} (an option, or [tool.profiler.check]): nothing counts {name}"
                    f"{suggestion(name, sorted(counted.union(GATED, UNGATED)))}"
                )


def suggestion(word: str, names: Iterable[str]) -> str:
    """`: did you mean syncs?`, or all names where none is similar."""
    names = list(names)
    similar = difflib.get_close_matches(word, names, 1)
    return f": did you mean {similar[0]}?" if similar else f": there are {', '.join(names)}"


def worst(states: Iterable[str]) -> str:
    """The worst of several states; PASS where there is none."""
    return max(states, key=STATES.index, default=PASS)


def overall(lines: Iterable[CounterLine]) -> str:
    """The state of the worst line."""
    return worst(line.state for line in lines)


def unused_limits(result: GateResult) -> tuple[Notice, ...]:
    """Notices of limits and ignored counters that no side counted, so that nobody relies on them."""
    if result.counters_state is None or (result.counters_reasons and not result.counters):
        return ()
    counted = {line.counter for line in result.counters}
    limits = sorted(set(result.limits.counters) - counted - {EVERY})
    ignored = sorted(set(result.limits.ignore) - counted)
    notices = (("limits-unused", limits), ("ignored-unused", ignored))
    return tuple(Notice(code, {"names": names}) for code, names in notices if names)


def _ordered(names: set[str]) -> list[str]:
    """Counters that are always checked in their usual order, then the others by name."""
    return [*(name for name in GATED if name in names), *sorted(names - set(GATED))]


def _unused_without_device(name: str, base: Sequence[Counted], candidate: Sequence[Counted]) -> bool:
    """Whether a counter that needs a device is 0 on one side while the other side had no device."""
    if any(process.totals.get(name) for process in (*base, *candidate)):
        return False
    return any(_lacked_device(name, [(process, process.totals) for process in side]) for side in (base, candidate))


def _lacked_device(name: str, side: Sequence[tuple[Counted, Mapping[str, float]]]) -> bool:
    return all(name in process.not_counted and name not in amounts for process, amounts in side)


# ---------------------------------------------------------------- one counter


def _line(name: str, scope: str, base: Sequence[Counted], candidate: Sequence[Counted], limits: Limits) -> CounterLine:
    sides = [[process.workers if scope == WORKER else process.totals for process in side] for side in (base, candidate)]
    before, after = (
        _Side(tuple(amounts.get(name, 0.0) for amounts in side), tuple(process.steps for process in processes))
        if any(name in amounts for amounts in side)
        else None
        for side, processes in zip(sides, (base, candidate), strict=True)
    )
    ranges = before.range if before else None, after.range if after else None

    def ungated(state: str, code: str, side: str = "") -> CounterLine:
        reason = Notice(code, {"side": side} if side else {})
        return CounterLine(name, state, *ranges, None, (reason,), scope=scope)

    if name in limits.ignore:
        return ungated(PASS, "ignored")
    if name not in GATED and name not in limits.counters:
        return ungated(PASS, "estimate" if name in UNGATED else "not-limited")
    for label, processes, amounts in zip(("baseline", "candidate"), (base, candidate), sides, strict=True):
        if scope == WORKER and not any(amounts):
            return ungated(PASS, "no-worker-counts", label)
        if _lacked_device(name, list(zip(processes, amounts, strict=True))):
            return ungated(INCONCLUSIVE, "no-device", label)
    if after is None:
        raise ProfilerError(
            f"{name}: the baseline has it and nothing in this run counted it. If that is meant, write the counters "
            f"down anew with --update, or add {name} to ignore in [tool.profiler.check]"
        )
    before = before or _Side(tuple(0.0 for _ in base), tuple(process.steps for process in base))
    limit = limits.counters.get(name) or limits.counters.get(EVERY) or Limit()
    allowed = _allowed(before, after, limit, scope)
    state, reasons = _judge(before, after, allowed)
    rose = after.range[1] > before.range[0]
    changes = changed_lines(name, base, candidate, workers=scope == WORKER) if rose else ()
    return CounterLine(name, state, ranges[0] or before.range, after.range, allowed, reasons, changes, scope)


def _allowed(before: _Side, after: _Side, limit: Limit, scope: str) -> float:
    """The largest amount per step that passes."""
    high, steps = before.range[1], min((*before.steps, *after.steps))
    slack = max(limit.absolute, limit.relative * high)
    if scope == WORKER:
        slack = max(slack, WORKER_BATCHES * high / steps)
    if not before.constant:
        slack = max(slack, WIDTHS * max(before.width, after.width), SPREAD * math.sqrt(high * steps) / steps)
    return high + slack


def _judge(before: _Side, after: _Side, allowed: float) -> tuple[str, tuple[Notice, ...]]:
    """The state and, where it does not tell all, the reasons."""
    (before_low, before_high), (low, high) = before.range, after.range
    steps = {"before": min(before.steps), "after": min(after.steps)}
    other_steps = len({*before.steps, *after.steps}) > 1
    varies = () if before.constant else (Notice("varies", {"low": before_low, "high": before_high}),)
    above = sum(_above(total / number, allowed) for total, number in zip(after.totals, after.steps, strict=True))
    if not above:
        if _above(before_low, high):
            return PASS, (Notice("fewer"), *((Notice("other-step-count", steps),) if other_steps else ()))
        return PASS, varies or ((Notice("within-limit"),) if _above(low, before_high) else ())
    processes = len(after.totals)
    if above < processes:
        reason = Notice("some-processes-above", {"above": above, "processes": processes})
        return INCONCLUSIVE if 2 * above > processes else PASS, (reason,)
    if other_steps and low - allowed < max(1.0, before_high / min((*before.steps, *after.steps))):
        return INCONCLUSIVE, (Notice("rare-events", steps),)
    return FAIL, varies


def _above(amount: float, limit: float) -> bool:
    return amount > limit and not math.isclose(amount, limit, rel_tol=_REL_TOL, abs_tol=_ABS_TOL)


# ---------------------------------------------------------------- the lines at which it rose


@dataclass(frozen=True, slots=True, order=True)
class _SourceLine:
    """A line of a side at which something was counted. The order of the fields is that of lines."""

    file: str
    number: int
    operation: str
    text: str
    function: str


_IDENTITIES: Final[tuple[Callable[[_SourceLine], object], ...]] = (
    lambda line: line,
    lambda line: line.text and (line.file, line.function, line.operation, line.text),
    lambda line: line.text and (line.file, line.operation, line.text),  # in a function of another name
    lambda line: line.text and (line.operation, line.text),  # in another file
    lambda line: (line.file, line.function, line.operation),  # its text was changed
)
"""Identities of a line in the other side, the most reliable first; empty: not applicable."""


def changed_lines(
    counter: str, base: Sequence[Counted], candidate: Sequence[Counted], *, workers: bool = False
) -> tuple[Change, ...]:
    """Lines at which every process of the candidate counted more than any of the base, per step, the largest first."""
    before = {line: max(amounts) for line, amounts in _amounts_by_line(counter, base, workers).items()}
    after = {line: min(amounts) for line, amounts in _amounts_by_line(counter, candidate, workers).items()}
    origin = _match_lines(list(before), list(after))
    changes = []
    for line, amount in after.items():
        earlier = before[origin[line]] if line in origin else 0.0
        if amount - earlier > _ABS_TOL * max(1.0, amount):
            place = line.file, line.number, line.function, line.operation
            changes.append(Change(counter, *place, earlier, amount, line.text))
    return tuple(
        sorted(changes, key=lambda change: (change.before - change.after, change.file, change.line, change.operation))
    )


def _amounts_by_line(counter: str, side: Sequence[Counted], workers: bool) -> dict[_SourceLine, list[float]]:
    """Each line with its amount per step in every process."""
    amounts: dict[_SourceLine, list[float]] = defaultdict(lambda: [0.0] * len(side))
    for index, process in enumerate(side):
        for (name, file, function, operation), lines in (process.worker_lines if workers else process.lines).items():
            for number, amount, text in lines if name == counter else ():
                amounts[_SourceLine(file, number, operation, text, function)][index] += amount / process.steps
    return dict(sorted(amounts.items()))


def _match_lines(before: Sequence[_SourceLine], after: Sequence[_SourceLine]) -> dict[_SourceLine, _SourceLine]:
    """Line of the candidate -> the line of the base that it was; the nearest where several are alike."""
    origin: dict[_SourceLine, _SourceLine] = {}
    unmatched = list(before)
    for identity in _IDENTITIES:
        lines: dict[object, list[_SourceLine]] = defaultdict(list)
        for line in unmatched:
            lines[identity(line)].append(line)
        for line in after:
            key = identity(line)
            if key and line not in origin and lines.get(key):
                origin[line] = min(lines[key], key=lambda other: abs(other.number - line.number))
                lines[key].remove(origin[line])
                unmatched.remove(origin[line])
    return origin
