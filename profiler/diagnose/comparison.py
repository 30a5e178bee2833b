"""Diagnoses a comparison: how much faster or slower each side is, and what in the recordings explains it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Final

from profiler.analyse.model import SAME_SIZE, Comparison, RankLedger, Side
from profiler.core.errors import Notice
from profiler.core.facts import stated_device
from profiler.core.metrics import PER_STEP, RATES
from profiler.diagnose.change import grown, largest_change
from profiler.diagnose.device import is_sampled
from profiler.diagnose.model import ComparisonDiagnosis, CounterChange, SideDiagnosis, WorkerMove
from profiler.run.model import RunInfo

COUNTERS: Final = ("syncs", "might_sync", "h2d", "d2h", "allocations", "launches")
"""Counters that a verdict may name, the most telling first."""
_MAX_SLOWDOWN: Final = 1.5
"""A breakdown pass that is slower than its light runs by more than this gives no cause: recording distorts it."""
_MAX_COUNTERS: Final = 2
_MIN_FACTOR: Final = 1.5
"""A counter that changed by less is not named."""


def diagnose_comparison(comparison: Comparison) -> ComparisonDiagnosis:
    if not comparison.comparable and not comparison.forced:
        return ComparisonDiagnosis(comparable=False, forced=False, mismatches=comparison.mismatches)
    return ComparisonDiagnosis(
        comparable=comparison.comparable,
        forced=comparison.forced,
        mismatches=comparison.mismatches,
        sides=tuple(_diagnose_side(comparison, side) for side in comparison.sides[1:]),
        starts=tuple((side.label, start) for side in comparison.sides if (start := _start(side)) is not None),
        ranks=_ranks(comparison),
    )


def _ranks(comparison: Comparison) -> tuple[tuple[str, RankLedger | None, int], ...]:
    passes = [(side.label, side.detail or side.runs[0]) for side in comparison.sides if side.detail or side.runs]
    return (
        tuple((label, each.ranks, each.job_size) for label, each in passes)
        if any(each.ranks for _, each in passes)
        else ()
    )


def _start(side: Side) -> float | None:
    """Seconds that programs state as `start_s`: in a short run that can be most of the waiting time."""
    stated = [run.info.facts.get("start_s") for run in side.runs]
    numbers = [float(value) for value in stated if isinstance(value, int | float) and not isinstance(value, bool)]
    return median(numbers) if numbers else None


def _diagnose_side(comparison: Comparison, side: Side) -> SideDiagnosis:
    base, ratios = comparison.sides[0], comparison.ratios.get(side.label, {})
    speeds = [ratios[name] for name in RATES if name in ratios]
    speed = next((ratio for ratio in speeds if ratio.known is not None), None)
    if speed is None or speed.known is None:
        reason = speeds[0].reason if speeds else Notice("no-pairs")
        waits = bool(speeds) and speeds[0].is_doubted
        either = tuple(each for faster in (True, False) for each in _counter_changes(base, side, faster=faster))
        return SideDiagnosis(base.label, side.label, None, reason=reason, counters=either if waits else ())
    units = (measure.unit for each in (base, side) if (measure := each.measures.get(speed.name)) and measure.unit)
    infos = [_info(base), _info(side)]
    result = SideDiagnosis(
        base.label,
        side.label,
        speed,
        unit=next(units, speed.name),
        devices=tuple(dict.fromkeys(stated_device(i.facts, i.devices) for i in infos if i and i.facts.get("device"))),
    )
    faster = speed.known > 1
    changes = tuple(_counter_changes(base, side, faster=faster))
    if speed.is_doubted:  # times of the breakdown pass tell no more than those of the light runs
        return replace(result, reason=speed.reason, counters=changes)
    if speed.n > 1 and not speed.different:
        return result
    before, after = ({} if info is None else info.facts for info in infos)
    if before.get("engine") != after.get("engine"):
        workers = after.get("workers")
        return replace(
            result, moved=WorkerMove(str(after.get("engine", "none")), workers if isinstance(workers, int) else 1)
        )
    change = largest_change(base.detail, side.detail, faster=faster) if base.detail and side.detail else None
    if change and change.name == "core" and any(notice.code == "blocks" for notice in comparison.method):
        change = None  # blocks of steps are without the waits for a core
    slowed = _slowed(base, side) if change and (change.is_cause or change.is_several) else None
    return replace(
        result,
        change=change,
        explained=change is not None and change.is_cause and speed.n > 1 and slowed is None,
        counters=changes[:_MAX_COUNTERS],
        busy=None if change else _busy(base, side),
        grown=grown(base.detail, side.detail) if base.detail and side.detail and not faster else (),
        slowed=slowed,
    )


def _info(side: Side) -> RunInfo | None:
    run = side.runs[0] if side.runs else side.detail
    return run.info if run else None


def _slowed(base: Side, side: Side) -> tuple[str, float] | None:
    """The breakdown pass that its recording slowed down most, where that is too much to explain the light runs."""
    slowest = max((base, side), key=lambda each: each.recording_slowdown.value or 0.0)
    factor = slowest.recording_slowdown.value or 0.0
    return (slowest.label, factor) if factor > _MAX_SLOWDOWN else None


def _busy(base: Side, side: Side) -> tuple[float, float] | None:
    """Utilization in the light runs, if the device itself counted it."""
    pair = [each.measures.get("device_utilization") for each in (base, side)]
    shares = [busy.value for busy in pair if busy and busy.value is not None and not is_sampled(busy)]
    return (shares[0], shares[1]) if len(shares) == len(pair) else None


def _counter_changes(base: Side, side: Side, *, faster: bool) -> Iterator[CounterChange]:
    """Counters that changed in the direction of the step time, where steps are of about the same size."""
    sizes = [_step_size(base), _step_size(side)]
    if all(sizes) and max(sizes) > SAME_SIZE * min(sizes):
        return
    for name in COUNTERS:
        before, after = (_measured(each, f"{name}{PER_STEP}") for each in (base, side))
        if before is None or after is None:
            continue
        large, small = (before, after) if faster else (after, before)
        if large > small * _MIN_FACTOR:
            yield CounterChange(name, before, after)


def _step_size(side: Side) -> float:
    """Tokens of a step; 0: not stated."""
    tokens, steps = (side.value(name) for name in RATES)
    return tokens / steps if tokens and steps else 0.0


def _measured(side: Side, name: str) -> float | None:
    """A measure of the light runs or, if they do not have it, of the breakdown pass."""
    light = side.value(name)
    return light if light is not None or side.detail is None else side.detail.value(name)
