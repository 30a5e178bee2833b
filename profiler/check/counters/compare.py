"""Counters of the candidate compared to those of the base: exactly where they are constant, else by range."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from profiler.check.counters.lines import (
    LinePair,
    above,
    amounts_by_line,
    change_of,
    changed_lines,
    ends,
    is_equal,
    pair_lines,
)
from profiler.check.diff import FileChange
from profiler.check.model import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    STATES,
    Budget,
    Change,
    ChangeKind,
    Counted,
    CounterLine,
    GateResult,
    Limit,
    Limits,
    is_earlier,
)
from profiler.core.errors import Notice, ProfilerError
from profiler.core.metrics import CHECKPOINT, COUNTED_IN, COUNTERS, EVALUATION, LOADER, NUMBER, counter_unit
from profiler.run.tables import MIGHT_SYNC

GATED: Final = tuple(counter.name for counter in COUNTERS if counter.gated)
"""Counters that may not rise even if no limit names them. Other counters of a program are shown, and checked only where
a limit names them: more of them may well be better."""
UNGATED: Final = (MIGHT_SYNC,)
"""Counters of the hooks that are checked only where a limit names them."""
KNOWN: Final = tuple(counter.name for counter in COUNTERS)
"""Counters that limits and budgets may name although a run does not count them."""
MEMORY: Final = ("allocated_bytes", "growth_bytes", "peak_bytes")
"""Endings of the counters of memory, which counts in the blocks that an allocator gives."""
_TOLERATED: Final = ("allocated_bytes", "peak_bytes", f"{LOADER}allocated_bytes")
_TOLERANCE: Final = Limit(absolute=1 << 20, relative=0.001)
"""How far these may rise where no limit names them: a statement that is split keeps a result for longer. 1 MiB are the
allocations that torch's caching allocator takes from one pool of small blocks (kSmallSize)."""
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
_MAX_LARGEST: Final = 3
"""Lines that are named where a budget is exceeded."""
_RARE: Final = (EVALUATION, CHECKPOINT)
STEP, WORKER = "step", "worker"


@dataclass(frozen=True, slots=True)
class _Side:
    """One counter in the processes of a side."""

    totals: tuple[float, ...]
    steps: tuple[int, ...]

    @classmethod
    def of_none(cls, processes: Sequence[Counted]) -> _Side:
        """Nothing was counted in these processes."""
        return cls((0.0,) * len(processes), tuple(process.steps for process in processes))

    @property
    def range(self) -> tuple[float, float]:
        """Return the lowest and the highest amount, per step."""
        per_step = [total / steps for total, steps in zip(self.totals, self.steps, strict=True)]
        return min(per_step), max(per_step)

    @property
    def width(self) -> float:
        low, high = self.range
        return 0.0 if is_equal(low, high) else high - low

    @property
    def constant(self) -> bool:
        return not self.width


def compare(
    base: Sequence[Counted],
    candidate: Sequence[Counted],
    limits: Limits,
    files: Sequence[FileChange] = (),
    *,
    by_line: bool = True,
) -> tuple[CounterLine, ...]:
    """Return a line for every counter of either side, those of the step first.

    A counter fails by its total, and by its lines of code: what one line counts less does not pay for what another one
    counts more.

    A counter that only the candidate has counts from 0. One that only the base has is an error: had its hooks been
    installed, it would be there with a 0. Where a side ran without a device, a counter that needs one is left out if
    the other side counted none of it either, and else INCONCLUSIVE.

    :param files: what became of files whose former text is known.
    :param by_line: False: the sides are two programs, whose lines are not the same; only totals are judged.
    :raises ProfilerError: a side is empty, a counter is missing, or limits name a counter that does not exist.
    """
    if not base or not candidate:
        raise ProfilerError("there is nothing to compare: a side has no process that was counted")
    processes = (*base, *candidate)
    _check_names(processes, limits)
    names = _ordered({name for process in processes for name in process.totals})
    sides = base, candidate
    # what needs a device, and is 0 on one side while the other side had none, is left out
    names = [
        name
        for name in names
        if any(process.totals.get(name) for process in processes)
        or not any(_lacked_device(name, [(process, process.totals) for process in side]) for side in sides)
    ]
    lines = [_line(name, STEP, sides, limits, files if by_line else None) for name in names]
    lines = [_budgeted(line, candidate, limits.budgets.get(line.counter)) for line in lines]
    in_workers = {name for process in processes for name, amount in process.workers.items() if amount}
    return (*lines, *(_line(name, WORKER, sides, limits, files) for name in _ordered(in_workers)))


def _check_names(processes: Sequence[Counted], limits: Limits) -> None:
    """Refuse a misspelt counter in the limits, which would silently have no effect."""
    counted = {name for process in processes for name in (*process.totals, *process.workers)}
    for key, names in (("limits", limits.counters), ("ignore", limits.ignore), ("budgets", limits.budgets)):
        for name in names:
            if name != EVERY and name not in counted and name not in KNOWN:
                raise ProfilerError(
                    f"{key} (an option, or [tool.profiler.check]): nothing counts {name}"
                    f"{suggestion(name, sorted(counted.union(KNOWN)))}"
                )


def suggestion(word: str, names: Iterable[str]) -> str:
    """Return `: did you mean syncs?`, or all names where none is similar."""
    names = list(names)
    similar = difflib.get_close_matches(word, names, 1)
    return f": did you mean {similar[0]}?" if similar else f": there are {', '.join(names)}"


def is_judged_by_line(counter: str) -> bool:
    """Return whether what one line counts less does not pay for another one. Amounts of bytes and of arithmetic move
    between lines when code is rewritten."""
    return not counter_unit(counter) and not counter.endswith("flops")


def worst(states: Iterable[str]) -> str:
    """Return the worst of several states; PASS where there is none."""
    return max(states, key=STATES.index, default=PASS)


def overall(lines: Iterable[CounterLine]) -> str:
    """Return the state of the worst line."""
    return worst(line.state for line in lines)


def unused_limits(result: GateResult) -> tuple[Notice, ...]:
    """Return notices of limits and ignored counters that no side counted, so that nobody relies on them."""
    if result.counters_state is None:
        return ()
    counted = {line.counter for line in result.counters}
    is_compared = not result.counters_reasons or any(line.before is not None for line in result.counters)
    limits = sorted(set(result.limits.counters) - counted - {EVERY}) if is_compared else []
    ignored = sorted(set(result.limits.ignore) - counted) if is_compared else []
    budgets = sorted(set(result.limits.budgets) - counted)
    notices = (("limits-unused", limits), ("ignored-unused", ignored), ("budgets-unused", budgets))
    return tuple(Notice(code, {"names": names}) for code, names in notices if names)


def _ordered(names: set[str]) -> list[str]:
    """Sort names: counters that are always checked in their usual order, then the others by name."""
    return [*(name for name in GATED if name in names), *sorted(names - set(GATED))]


def _lacked_device(name: str, side: Sequence[tuple[Counted, Mapping[str, float]]]) -> bool:
    return all(name in process.not_counted and name not in amounts for process, amounts in side)


# ---------------------------------------------------------------- one counter


def _line(
    name: str,
    scope: str,
    counted: tuple[Sequence[Counted], Sequence[Counted]],
    limits: Limits,
    files: Sequence[FileChange] | None,
) -> CounterLine:
    base, candidate = counted
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

    if code := _ungated(name, limits) or _not_compared(name, ranges, counted, files):
        return ungated(PASS, code)
    is_of_batches = name.startswith(LOADER) or (scope == WORKER and name in COUNTED_IN[LOADER])
    if is_of_batches and None in ranges:  # no workers, or batches that all differ
        return ungated(PASS, "on-one-side")
    if name.startswith(_RARE):
        after = after or _Side.of_none(candidate)
    if name.endswith(MEMORY) and before is None:
        return ungated(PASS, "memory-in-bytes")
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
    before = before or _Side.of_none(base)
    default = _TOLERANCE if name in _TOLERATED else Limit()
    limit = limits.counters.get(name) or limits.counters.get(EVERY) or default
    allowed = _allowed(before, after, limit, scope)
    state, reasons = _judge(before, after, allowed)
    changes = changed_lines(name, base, candidate, files or (), workers=scope == WORKER)
    rose = tuple(change for change in changes if change.kind in (ChangeKind.APPEARED, ChangeKind.GREW))
    is_exact = before.constant and after.constant and is_judged_by_line(name)
    if is_exact and scope == STEP and files is not None and state == PASS:
        by_line = _risen_lines(rose, changes, allowed - before.range[1])
        state, reasons = (FAIL, by_line) if by_line else (state, reasons)
    others = tuple(change for change in changes if change not in rose)
    base_range = ranges[0] or before.range
    return CounterLine(name, state, base_range, after.range, allowed, reasons, rose, scope, other_changes=others)


def _risen_lines(rose: Sequence[Change], changes: Sequence[Change], slack: float) -> tuple[Notice, ...]:
    """Return why a counter fails by its lines although its total passes; empty: it does not."""
    risen = sum(change.after - change.before for change in rose)
    if not above(risen, slack):
        return ()
    # the same operation waits earlier in a step, and less at a later stage
    earlier = (
        Notice("waits-earlier", {"now": now.stage, "before": then.stage})
        for now in rose
        for then in changes
        if then.operation == now.operation and then.after < then.before and is_earlier(now.stage, then.stage)
    )
    return (Notice("lines-rose", {"risen": risen}), *islice(earlier, 1))


def _not_compared(
    name: str,
    ranges: tuple[tuple[float, float] | None, tuple[float, float] | None],
    counted: tuple[Sequence[Counted], Sequence[Counted]],
    files: Sequence[FileChange] | None,
) -> str:
    """Return why a counter of evaluations or checkpoints is not compared; empty: it is, or it is another counter.

    How often a program makes them may depend on its losses: only one in each step is certainly more than fewer.
    """
    prefix = next((each for each in _RARE if name.startswith(each)), None)
    if prefix is None:
        return ""
    before, after = ranges
    if name == f"{prefix}{NUMBER}":
        is_each = after is not None and after[0] >= 1 and (before is None or before[1] < 1)
        return "" if is_each else "how-many"
    for side, amounts in zip(counted, ranges, strict=True):
        if amounts is None and not any(f"{prefix}{NUMBER}" in process.totals for process in side):
            return "on-one-side"
    if prefix == CHECKPOINT and files is not None:
        base, candidate = (dict.fromkeys(amounts_by_line(f"{CHECKPOINT}{NUMBER}", side), 1.0) for side in counted)
        if any(pair.base is None or pair.candidate is None for pair in pair_lines(base, candidate, files)):
            return "other-checkpoints"
    return ""


def _budgeted(line: CounterLine, candidate: Sequence[Counted], budget: Budget | None) -> CounterLine:
    """Return a line with its budget, which is exceeded if every process counts more."""
    if budget is None or line.after is None:
        return line
    for amount, fails in ((budget.fail, True), (budget.warn, False)):
        if amount is None or not above(line.after[0], amount):
            continue
        sums = ends(amounts_by_line(line.counter, candidate), min)
        largest = sorted(sums, key=lambda each: (-sums[each], each))[:_MAX_LARGEST]
        pairs = (LinePair(each, each, sums[each], sums[each]) for each in largest)
        code = "above-budget" if fails else "above-warning"
        reason = Notice(code, {"amount": amount, "counter": line.counter})
        return replace(
            line,
            state=FAIL if fails else line.state,
            is_risen=line.state == FAIL,
            reasons=(reason, *line.reasons),
            exceeded=amount,
            largest=tuple(change_of(pair) for pair in pairs),
        )
    return line


def budget_lines(candidate: Sequence[Counted], limits: Limits) -> tuple[CounterLine, ...]:
    """Return the counters that have a budget, judged by it alone, where there is no base to compare them to."""
    return tuple(
        replace(
            line, before=None, allowed=None, reasons=tuple(reason for reason in line.reasons if reason.code != "varies")
        )
        for line in compare(candidate, candidate, limits)
        if line.counter in limits.budgets and line.scope == STEP
    )


def budget_warnings(lines: Iterable[CounterLine]) -> tuple[Notice, ...]:
    """Return a warning for each counter that exceeds a budget which does not fail the check."""
    return tuple(
        Notice("budget-warning", {"counter": line.counter, "amount": line.after[1], "budget": line.exceeded})
        for line in lines
        if line.after is not None and any(reason.code == "above-warning" for reason in line.reasons)
    )


def _ungated(name: str, limits: Limits) -> str:
    """Return why a counter cannot fail the check by rising; empty: it can."""
    if name in limits.ignore:
        return "ignored"
    if name in GATED or name in limits.counters:
        return ""
    return "estimate" if name in UNGATED else "not-limited"


def _allowed(before: _Side, after: _Side, limit: Limit, scope: str) -> float:
    """Return the largest amount per step that passes."""
    high, steps = before.range[1], min((*before.steps, *after.steps))
    slack = max(limit.absolute, limit.relative * high)
    if scope == WORKER:
        slack = max(slack, WORKER_BATCHES * high / steps)
    if not before.constant:
        slack = max(slack, WIDTHS * max(before.width, after.width), SPREAD * math.sqrt(high * steps) / steps)
    return high + slack


def _judge(before: _Side, after: _Side, allowed: float) -> tuple[str, tuple[Notice, ...]]:
    """Return the state and, where it does not tell all, the reasons."""
    (before_low, before_high), (low, high) = before.range, after.range
    steps = {"before": min(before.steps), "after": min(after.steps)}
    other_steps = len({*before.steps, *after.steps}) > 1
    varies = () if before.constant else (Notice("varies", {"low": before_low, "high": before_high}),)
    exceeding = sum(above(total / number, allowed) for total, number in zip(after.totals, after.steps, strict=True))
    if not exceeding:
        if above(before_low, high):
            return PASS, (Notice("fewer"), *((Notice("other-step-count", steps),) if other_steps else ()))
        return PASS, varies or ((Notice("within-limit"),) if above(low, before_high) else ())
    processes = len(after.totals)
    if exceeding < processes:
        reason = Notice("some-processes-above", {"above": exceeding, "processes": processes})
        return INCONCLUSIVE if 2 * exceeding > processes else PASS, (reason,)
    if other_steps and low - allowed < max(1.0, before_high / min((*before.steps, *after.steps))):
        return INCONCLUSIVE, (Notice("rare-events", steps),)
    return FAIL, varies
