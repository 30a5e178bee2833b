"""Counters of the candidate held against those of the base: exactly where they are constant, else by range."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from profiler.check.changes import changes_of
from profiler.check.limits import suggestion
from profiler.check.loading import IN_LOADER
from profiler.check.model import FAIL, INCONCLUSIVE, PASS, STATES, Counted, CounterLine, Limit, Limits
from profiler.check.nouns import some
from profiler.core.errors import ProfilerError
from profiler.core.metrics import COUNTERS

GATED: Final = tuple(counter.name for counter in COUNTERS if counter.gated)
"""What gates without being named. What else a program counts is shown, and gates when the limits name it: it may well
count what is better when there is more of it."""
UNGATED: Final[Mapping[str, str]] = {IN_LOADER: "gates nothing: what batches are made of is on the host for good"}
"""Known counters that gate only where the limits name them, and why they do not."""
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
"""Batches by which what is seen of a loader's workers may differ: the last one of an epoch may be smaller."""
STEP, WORKER = "step", "worker"

FEWER: Final = "fewer"
_KEEP: Final = f"{FEWER}: write the new count down with --update"
_CLOSE: Final = 1e-12
"""Of what went through a division; a byte more among terabytes is not close."""
_LEAST: Final = 1e-9


@dataclass(frozen=True, slots=True)
class _Side:
    """One counter in the processes of a side."""

    totals: tuple[float, ...]
    steps: tuple[int, ...]

    @property
    def range(self) -> tuple[float, float]:
        """Least and most, per step."""
        per_step = [total / steps for total, steps in zip(self.totals, self.steps, strict=True)]
        return min(per_step), max(per_step)

    @property
    def width(self) -> float:
        least, most = self.range
        return 0.0 if _equal(least, most) else most - least

    @property
    def constant(self) -> bool:
        return not self.width


def compare(base: Sequence[Counted], candidate: Sequence[Counted], limits: Limits) -> tuple[CounterLine, ...]:
    """A line for every counter of either side, those of the step first.

    A counter that only the candidate has counts from 0. One that only the base has is an error: where its hooks had
    come in, it would be there with a 0. Where a side ran without a device, what only a device counts is no line if the
    other side did none of it either, and else INCONCLUSIVE.

    :raises ProfilerError: there is nothing on one side, a counter is missing, or limits name one that there is not.
    """
    if not base or not candidate:
        raise ProfilerError("there is nothing to compare: a side has no process that was counted")
    _check_names(base, candidate, limits)
    names = [name for name in _names(base, candidate, _own) if not _without_device(name, base, candidate, _own)]
    lines = [_line(name, STEP, base, candidate, limits) for name in names]
    if not any(one.workers for one in (*base, *candidate)):
        return tuple(lines)
    seen = [
        name
        for name in _names(base, candidate, _of_workers)
        if any(one.workers.get(name) for one in (*base, *candidate))
    ]
    return (*lines, *(_line(name, WORKER, base, candidate, limits) for name in seen))


def _check_names(base: Sequence[Counted], candidate: Sequence[Counted], limits: Limits) -> None:
    """A limit for a counter that is spelt otherwise would hold for nothing, without a word."""
    there = {name for one in (*base, *candidate) for name in (*one.totals, *one.workers)}
    for key, names in (("limits", limits.counters), ("ignore", limits.ignore)):
        for name in names:
            if name != EVERY and name not in there and name not in GATED and name not in UNGATED:
                near = suggestion(name, sorted(there.union(GATED, UNGATED)))
                raise ProfilerError(f"{key} (an option, or [tool.profiler.check]): nothing counts {name}{near}")


def overall(lines: Sequence[CounterLine]) -> str:
    """As bad as the worst line."""
    return max((line.state for line in lines), key=STATES.index, default=PASS)


def limit_of(name: str, limits: Limits) -> Limit:
    """How far it may rise."""
    return limits.counters.get(name) or limits.counters.get(EVERY) or Limit()


# ---------------------------------------------------------------- which counters


def _own(one: Counted) -> Mapping[str, float]:
    return one.totals


def _of_workers(one: Counted) -> Mapping[str, float]:
    return one.workers


def _names(
    base: Sequence[Counted], candidate: Sequence[Counted], of: Callable[[Counted], Mapping[str, float]]
) -> tuple[str, ...]:
    """Those that gate in their usual order, then the others by name."""
    there = {name for one in (*base, *candidate) for name in of(one)}
    return (*(name for name in GATED if name in there), *sorted(there - set(GATED)))


def _side(name: str, counted: Sequence[Counted], of: Callable[[Counted], Mapping[str, float]]) -> _Side | None:
    if not any(name in of(one) for one in counted):
        return None
    return _Side(tuple(of(one).get(name, 0.0) for one in counted), tuple(one.steps for one in counted))


def _without_device(
    name: str, base: Sequence[Counted], candidate: Sequence[Counted], of: Callable[[Counted], Mapping[str, float]]
) -> bool:
    """Whether a counter of devices is only a 0 of one side, while the other had none to ask."""
    has_none = any(_had_no_device(name, side, of) for side in (base, candidate))
    return has_none and not any(of(one).get(name) for one in (*base, *candidate))


def _had_no_device(name: str, side: Sequence[Counted], of: Callable[[Counted], Mapping[str, float]]) -> bool:
    return all(name in one.not_counted and name not in of(one) for one in side)


# ---------------------------------------------------------------- one counter


def _line(name: str, scope: str, base: Sequence[Counted], candidate: Sequence[Counted], limits: Limits) -> CounterLine:
    of = _of_workers if scope == WORKER else _own
    before, after = _side(name, base, of), _side(name, candidate, of)
    ranges = before.range if before else None, after.range if after else None
    if name in limits.ignore:
        return CounterLine(name, PASS, *ranges, None, "ignored", scope=scope)
    if name not in GATED and name not in limits.counters:
        why = UNGATED.get(name, "gates nothing: limits do not name it")
        return CounterLine(name, PASS, *ranges, None, why, scope=scope)
    if scope == WORKER and (not any(map(of, base)) or not any(map(of, candidate))):
        side = "baseline" if not any(map(of, base)) else "candidate"
        return CounterLine(name, PASS, *ranges, None, f"the {side} counted no loader workers", scope=scope)
    for label, counted in (("baseline", base), ("candidate", candidate)):
        if _had_no_device(name, counted, of):
            why = f"the {label} ran without a device: nothing counts it there"
            return CounterLine(name, INCONCLUSIVE, *ranges, None, why, scope=scope)
    if after is None:
        raise ProfilerError(
            f"{name}: the baseline has it and nothing in this run counted it. If that is meant, write the counters "
            f"down anew with --update, or add {name} to ignore in [tool.profiler.check]"
        )
    before = before or _Side(tuple(0.0 for _ in base), tuple(one.steps for one in base))
    allowed = _allowed(before, after, limit_of(name, limits), scope)
    state, reason = _judged(before, after, allowed)
    changes = changes_of(name, base, candidate, workers=scope == WORKER) if after.range[1] > before.range[0] else ()
    return CounterLine(name, state, ranges[0] or before.range, after.range, allowed, reason, changes, scope)


def _allowed(before: _Side, after: _Side, limit: Limit, scope: str) -> float:
    """The most that passes, per step."""
    most, steps = before.range[1], min((*before.steps, *after.steps))
    slack = max(limit.absolute, limit.relative * most)
    if scope == WORKER:
        slack = max(slack, WORKER_BATCHES * most / steps)
    if not before.constant:
        slack = max(slack, WIDTHS * max(before.width, after.width), SPREAD * math.sqrt(most * steps) / steps)
    return most + slack


def _judged(before: _Side, after: _Side, allowed: float) -> tuple[str, str]:
    """The state and, where it does not say all, the reason."""
    (least, most), (low, high) = before.range, after.range
    varies = f"varies in the baseline: {least:g} to {most:g} per step" if not before.constant else ""
    above = sum(_above(total / steps, allowed) for total, steps in zip(after.totals, after.steps, strict=True))
    if not above:
        if _above(least, high):
            return PASS, f"{FEWER}, {_steps(before, after)}" if _other_steps(before, after) else _KEEP
        return PASS, varies or ("more, within its limit" if _above(low, most) else "")
    if above < len(after.totals):
        reason = f"above the limit in {above} of {len(after.totals)} processes: it varies"
        return INCONCLUSIVE if 2 * above > len(after.totals) else PASS, reason
    if _other_steps(before, after) and low - allowed < max(1.0, most / min((*before.steps, *after.steps))):
        return INCONCLUSIVE, f"{_steps(before, after)}: what comes once in a while needs as many"
    return FAIL, varies


def _other_steps(before: _Side, after: _Side) -> bool:
    """Whether the sides, or their processes, took different numbers of steps."""
    return len({*before.steps, *after.steps}) > 1


def _steps(before: _Side, after: _Side) -> str:
    """The fewest of each side."""
    return f"counted over {some(min(after.steps), 'step')} against {min(before.steps)}"


def _equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_CLOSE, abs_tol=_LEAST)


def _above(one: float, other: float) -> bool:
    return one > other and not _equal(one, other)
