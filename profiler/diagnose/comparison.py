"""Diagnoses a comparison: how much faster or slower each side is, and what in the recordings explains it.

The explanation is what changed between two breakdown passes in the same direction as the step time. If both runs have
phases, it names one, several or all of them. Otherwise it names the device's idle time or the host's time, by category.
Host time that did not leave the device idle was hidden behind its work, and so explains nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import Any, Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Comparison, Side
from profiler.analyse.model.finding import MUCH
from profiler.analyse.model.ledger import MAIN, Owner, Period
from profiler.analyse.model.measures import SAME_SIZE
from profiler.core.errors import Notice
from profiler.core.facts import stated_device
from profiler.core.metrics import PER_STEP, RATES
from profiler.core.units import share
from profiler.diagnose.device import hides_waits, is_sampled, program_blame
from profiler.diagnose.model import (
    MOST,
    NAMED,
    ComparisonDiagnosis,
    CounterChange,
    Growth,
    PhaseChange,
    SideDiagnosis,
    TimeChange,
    TimeChangeKind,
    WorkerMove,
)
from profiler.run.model import RunInfo, Site

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
    passes = [(side.label, side.detail or side.runs[0]) for side in comparison.sides if side.detail or side.runs]
    return ComparisonDiagnosis(
        comparable=comparison.comparable,
        forced=comparison.forced,
        mismatches=comparison.mismatches,
        sides=tuple(_diagnose_side(comparison, side) for side in comparison.sides[1:]),
        starts=tuple((side.label, start) for side in comparison.sides if (start := _start(side)) is not None),
        ranks=tuple((label, each.ranks, each.job_size) for label, each in passes)
        if any(each.ranks for _, each in passes)
        else (),
    )


def _start(side: Side) -> float | None:
    """Return the seconds that programs state as `start_s`: in a short run that can be most of the waiting time."""
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
    """Return the breakdown pass that its recording slowed down most, where that is too much to explain the light
    runs."""
    slowest = max((base, side), key=lambda each: each.recording_slowdown.value or 0.0)
    factor = slowest.recording_slowdown.value or 0.0
    return (slowest.label, factor) if factor > _MAX_SLOWDOWN else None


def _busy(base: Side, side: Side) -> tuple[float, float] | None:
    """Return the utilization in the light runs, if the device itself counted it."""
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
    """Return a measure of the light runs or, if they do not have it, of the breakdown pass."""
    light = side.value(name)
    return light if light is not None or side.detail is None else side.detail.value(name)


# ---------------------------------------------------------------- what changed in the step

_ALONE: Final = 0.6
"""A phase is named alone if it makes up this share of all changes in the direction of the step time."""
_MAX_PHASES: Final = 3
_SMALL: Final = 0.05
"""Phases below this share of the slower step are ignored in deciding whether all phases changed."""
_UNEXPLAINED: Final = ("elsewhere", "unattributed")
_BETWEEN_PHASES: Final = ("checkpoint", "log", "python", "waiting", "gil")
"""Host categories of code between the phases of a step."""


def largest_change(base: Analysis, side: Analysis, *, faster: bool) -> TimeChange | None:
    """Return the largest change from `base` to `side`; None where nothing is worth naming.

    :param faster: whether the light runs say that `side` is faster.
    """
    slow, fast = (base, side) if faster else (side, base)
    long, short = slow.value("step_time"), fast.value("step_time")
    if not long or not short:
        return None
    gain = long - short
    if base.phases and side.phases:
        change = _core_change(slow, fast, gain, faster=faster) or _phase_change(slow, fast, gain, faster=faster)
        between = change is not None and change.kind is TimeChangeKind.PHASE and change.name in _UNEXPLAINED
        return (_category_change(slow, fast, gain, faster=faster) if between else None) or change
    kind, parts, others = TimeChangeKind.IDLE, _idle_seconds(slow), _idle_seconds(fast)
    if parts is None or others is None:
        kind, parts, others = TimeChangeKind.HOST, _host_seconds(slow), _host_seconds(fast)
    if parts is None or others is None or not (parts or others):
        return None
    gains = _gains(parts, others)
    if kind is TimeChangeKind.IDLE:  # how busy the machine was says nothing about the program
        gain -= gains.pop("core", 0.0)
    # what one side measured may be a part of what is not known of the other
    unknown = others.get("unattributed", 0.0)
    gains = {name: value - unknown * (name != "unattributed") for name, value in gains.items()}
    if kind is TimeChangeKind.HOST:
        is_known, alone = unknown <= _SMALL * short, fast.job_size <= 1
        # beside much time that is not known a 0 says nothing; a thread whose waits are measured always has some
        gains = {
            name: value
            for name, value in gains.items()
            if others.get(name)
            or name == "unattributed"
            or (is_known and name != "core")
            or (name == "ranks" and alone)
        }
    name = max(gains, key=lambda key: gains[key], default="")
    if not name or gains[name] <= NAMED * abs(gain):
        return None
    amounts = parts.get(name, 0.0), others.get(name, 0.0)
    shares = amounts[0] / long, amounts[1] / short
    # recording distorts shares least, but shares mislead if the rest of the step changed even more
    as_shares = shares[0] > shares[1] and share(shares[0]) != share(shares[1])
    is_cause = gains[name] >= MOST * gain > 0 and name not in _UNEXPLAINED
    site = _blamed_line(slow, name) if kind is TimeChangeKind.IDLE else None
    more = {"is_cause": is_cause, "site": site, "as_shares": as_shares}
    return _change(kind, name, shares if as_shares else amounts, faster=faster, **more)


_PACKAGES: Final = {Owner.TORCH: "torch", Owner.PYTHON: "Python's library"}


def grown(base: Analysis, side: Analysis) -> tuple[Growth, ...]:
    """Return what takes longer in each step of `side`, by more than chance and by much of a step, the largest first."""
    before, after = _entries(base), _entries(side)
    step, longer = (each.value("step_time") or 0.0 for each in (base, side))
    least = max(MUCH * step, NAMED * (longer - step))
    growths = []
    for key, (site, seconds, low, _) in after.items() if before else ():
        _, earlier, _, high = before.get(key, (None, 0.0, 0.0, 0.0))
        if low > high and seconds - earlier > least:
            growths.append(Growth(site, key[1], earlier, seconds))
    return tuple(sorted(growths, key=lambda each: each.before - each.after))


def _entries(analysis: Analysis) -> dict[tuple[Any, str], tuple[Site | None, float, float, float]]:
    """Return the seconds of each step at a line and in a library below it, with their interval."""
    entries: dict[tuple[Any, str], tuple[Site | None, float, float, float]] = {}
    ledger = analysis.ledger
    for cell in ledger.of(Period.STEPS) if ledger else ():
        package = cell.package or _PACKAGES.get(cell.owner, "")
        if ledger and cell.is_own and (cell.place or package):
            key = (cell.place and cell.place.place, package)
            _, *sums = entries.get(key, (None, 0.0, 0.0, 0.0))
            parts = (cell.seconds, cell.low, cell.high)
            total = [each + part / ledger.steps[MAIN] for each, part in zip(sums, parts, strict=True)]
            entries[key] = (cell.place, total[0], total[1], total[2])
    return entries


def _change(kind: TimeChangeKind, name: str, amounts: tuple[float, float], *, faster: bool, **more: Any) -> TimeChange:
    """Return a change between these amounts of the slow side and of the fast one."""
    before, after = amounts if faster else amounts[::-1]
    return TimeChange(kind, name, faster, before=before, after=after, **more)


def _gains(slow: Mapping[str, float], fast: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds by which each part is longer on the slow side."""
    return {name: slow.get(name, 0.0) - fast.get(name, 0.0) for name in {**slow, **fast}}


def _core_change(slow: Analysis, fast: Analysis, gain: float, *, faster: bool) -> TimeChange | None:
    """Return the change of the waits for a core, which fall into every phase, where it explains more than any phase
    does."""
    long, short = ((_host_seconds(each) or {}).get("core") for each in (slow, fast))
    if gain <= 0 or long is None or short is None or long - short < _ALONE * gain:
        return None
    if long - short <= max(_gains(_phase_seconds(slow), _phase_seconds(fast)).values()):
        return None
    return _change(TimeChangeKind.HOST, "core", (long, short), faster=faster, is_cause=True)


def _category_change(slow: Analysis, fast: Analysis, gain: float, *, faster: bool) -> TimeChange | None:
    """Return the change of what a step does between its phases, where one category explains most of the step time."""
    long, short = (_host_seconds(each) or {} for each in (slow, fast))
    gains = _gains(long, short)
    name = max(_BETWEEN_PHASES, key=lambda category: gains.get(category, 0.0))
    if gain <= 0 or gains.get(name, 0.0) < MOST * gain:
        return None
    lines = {line.site: line.categories.get(name, 0.0) for line in slow.lines}
    site = max(lines, key=lambda line: lines[line], default=None)
    amounts = long.get(name, 0.0), short.get(name, 0.0)
    is_most = site is not None and lines[site] > MOST * max(amounts)
    return _change(TimeChangeKind.HOST, name, amounts, faster=faster, is_cause=True, site=site if is_most else None)


def _phase_change(slow: Analysis, fast: Analysis, gain: float, *, faster: bool) -> TimeChange | None:
    """Return the change by phase, in seconds: phases are parts of the program that can be removed, and not kinds of
    time.

    :param gain: seconds a step from the fast side to the slow one; negative where the breakdown passes went the
        other way, and then no phase explains it.
    """
    long, short = _phase_seconds(slow), _phase_seconds(fast)
    sites = {phase.name: phase.site for phase in slow.phases}
    gains = _gains(long, short)
    ordered = sorted(gains, key=lambda name: -gains[name])
    name, largest = ordered[0], gains[ordered[0]]
    if largest <= NAMED * abs(gain):
        return None
    if gain <= 0 or largest > _ALONE * sum(value for value in gains.values() if value > 0):
        site = sites.get(name)
        lines = [line.seconds_per_step for line in slow.lines if site and line.site.place == site.place]
        amounts = long.get(name, 0.0), short.get(name, 0.0)
        is_cause, taken = largest >= MOST * gain > 0 and name not in _UNEXPLAINED, sum(lines) if lines else None
        more = {"is_cause": is_cause, "site": site, "site_seconds": taken}
        return _change(TimeChangeKind.PHASE, name, amounts, faster=faster, **more)
    threshold = NAMED * gain
    listed = [name for number, name in enumerate(ordered[:_MAX_PHASES]) if number < 2 or gains[name] > threshold]
    small = _SMALL * sum(long.values())
    pairs = [(long.get(name, 0.0), short.get(name, 0.0)) for name in {*long, *short}]
    all_changed = all(slow - fast > NAMED * slow for slow, fast in pairs if max(slow, fast) > small)
    if all_changed:  # then no line is to blame
        sites = {}
    sign = -1 if faster else 1
    explained = sum(gains[name] for name in listed if name not in _UNEXPLAINED)
    return TimeChange(
        TimeChangeKind.ALL_PHASES if all_changed else TimeChangeKind.SEVERAL_PHASES,
        "",
        faster,
        is_cause=explained > _ALONE * gain and not all_changed,
        phases=tuple(PhaseChange(name, sign * gains[name], sites.get(name)) for name in listed),
        against=tuple(PhaseChange(name, sign * gains[name]) for name in ordered[-1:] if gains[name] < -threshold),
        step_seconds=sign * gain,
    )


def _phase_seconds(analysis: Analysis) -> dict[str, float]:
    return {phase.name: phase.seconds_per_step for phase in analysis.phases}


def _idle_seconds(analysis: Analysis) -> dict[str, float] | None:
    """Idle seconds per step by the host category that they are charged to; None where this is not known."""
    idle = analysis.device_breakdown.get("idle")
    if not analysis.idle and (idle is None or idle.value != 0):
        return None
    totals: dict[str, float] = {}
    for row in program_blame(analysis):
        totals[row.category] = totals.get(row.category, 0.0) + row.seconds_per_step
    return totals


def _host_seconds(analysis: Analysis) -> dict[str, float] | None:
    """Return host seconds per step by category, without `python` if that may hide waits."""
    hidden = ("python",) if hides_waits(analysis) else ()
    parts = {name: part.value for name, part in analysis.breakdown.items() if part.value is not None}
    return {name: value for name, value in parts.items() if name not in hidden} or None


def _blamed_line(analysis: Analysis, category: str) -> Site | None:
    """Return the line with most of a category's idle time, in the function with most of it: as first screens sum it."""
    lines: dict[Site | None, float] = {}
    functions: dict[tuple[str, str], float] = {}
    rows = [row for row in program_blame(analysis) if row.category == category]
    for row in sorted(rows, key=lambda row: -row.share_of_wall):
        lines[row.site] = lines.get(row.site, 0.0) + row.share_of_wall
        functions[_function(row.site)] = functions.get(_function(row.site), 0.0) + row.share_of_wall
    return max(lines, key=lambda site: (functions[_function(site)], lines[site]), default=None)


def _function(site: Site | None) -> tuple[str, str]:
    return (site.file, site.function) if site else ("", "")
