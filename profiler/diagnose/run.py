"""Diagnoses a run: how idle the device was and what the host did meanwhile, or what a step is spent on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from profiler.analyse.ledger.cells import GARBAGE_KIND, IMPORT_KIND, NOT_RECORDED, Cell, Owner, Period
from profiler.analyse.model import (
    AFTER_OPTIMIZER,
    CORELESS_CATEGORIES,
    INTERRUPTIONS,
    UNATTRIBUTED,
    UPDATE,
    WAIT_CATEGORIES,
    WAITING_FOR_INDEX,
    WAITING_FOR_WORKERS,
    Analysis,
    Cause,
    InputPart,
    Location,
    LocationKind,
    Phase,
    Stage,
    ThreadState,
)
from profiler.core.facts import stated_device
from profiler.core.notice import Notice
from profiler.diagnose.device import BUSY, MAX_CAUSES, MOST, diagnose_device
from profiler.diagnose.model import MUCH_UNKNOWN, NAMED, WORTH_NAMING, RunDiagnosis, RunPart, RunVerdict, UnknownShare
from profiler.run.model import Site, StepKind

NEARLY_ALL: Final = 0.9
"""Share of a category that must lie outside of compilation and the optimizer for its places to be named."""
COMPUTING_LEADS: Final = 0.6
"""Share of a step from which computing is named before what can be removed beside it."""
AFTER_LEADS: Final = 0.2
"""Share of a step from which what runs after the optimizer is named first, though computing may take most of it: it is
not part of the training."""
_ROUNDING: Final = 1e-6
_NOTHING: Final = 0.03
"""Lower end of an interval below which a further cause may be chance: '16% (1 to 25%)' names what may not be there."""
_STANDING_BY: Final = (ThreadState.IDLE, ThreadState.CHILD)
"""States of a launcher while its children work."""
_STEP_CATEGORIES: Final = ("sync", "copy", "log", "checkpoint", "python", "framework", "launch", *WAIT_CATEGORIES)
_BESIDE_A_DEVICE: Final = ("input", "log", "checkpoint")
"""Categories that take the host's time whether the device is busy or not; in all others it may be waiting for it."""
_NOT_TRAINING: Final = (AFTER_OPTIMIZER, *INTERRUPTIONS)
"""Phases of a step that are causes themselves; their time is also time of categories."""
MUCH_UPDATING: Final = 1 / 3
"""Share of a step from which the optimizer's step is a cause. A choice: below it an update is a usual part of a step,
and tests/clinic/cases/wild/optimizer_loop.py, which is ill, spends half of its steps on updates."""
_OUTWEIGHS_PHASES: Final = ("python", "gil", "ranks", "waiting", "log", "checkpoint")
"""Categories that tell more than the phase after the optimizer, where they take most of it; operators do not."""
_PHASE_WEIGHT: Final = 1.25
"""The time after the optimizer is also time of some categories: if both are about equal, the phase is more
informative."""


def diagnose_run(analysis: Analysis) -> RunDiagnosis:
    """Why the device was idle, that it was busy, or why that is not known; and which rank makes the others wait."""
    found, peak = _diagnose_rank(analysis), analysis.value("peak_share")
    if found.verdict is not RunVerdict.NO_STEP:
        found = replace(found, **_outside(analysis))
    return replace(found, ranks=analysis.ranks, findings=analysis.findings, peak_share=peak)


def _diagnose_rank(analysis: Analysis) -> RunDiagnosis:
    """The diagnosis of the analysed rank."""
    if analysis.step is not None and analysis.step.is_whole_run:
        return _diagnose_unseen(analysis)
    step = analysis.measures.get("step_time")
    if step is None or step.value is None:
        if analysis.threads:
            working = (thread for thread in analysis.threads if thread.state not in _STANDING_BY)
            thread = next(working, analysis.threads[0])
            return RunDiagnosis(RunVerdict.THREADS_ONLY, thread=thread)
        reason = step.reason if step else Notice("no-step")
        return RunDiagnosis(RunVerdict.NOTHING_MEASURED, reason=reason)
    if diagnosis := diagnose_device(analysis):
        return diagnosis
    busy = analysis.measures.get("device_utilization")
    if busy is None or busy.value is None:
        return _diagnose_host(analysis, busy.reason if busy else Notice("not-recorded"))
    if busy.value < BUSY:
        return _diagnose_host(analysis, Notice("only-nvml", {"share": busy.value}))
    # when the device is busy, the host's other waits and late launches only reflect the device's work
    beside = _named([cause for cause in _step_causes(analysis) if cause.category in _BESIDE_A_DEVICE])
    device = stated_device(analysis.info.facts, analysis.info.devices)
    return RunDiagnosis(RunVerdict.DEVICE_BUSY_SAMPLED, device, busy.value, beside)


_NAMED_KINDS: Final = dict.fromkeys(("python", "compute", "framework", GARBAGE_KIND, IMPORT_KIND), "")
"""Kinds that say less of a part of a run than whose code it was."""
_TORCH: Final = (Owner.IMPORT, "torch")
SMALL_PART: Final = 0.1
"""Share of the run below which the measured steps are a small part of it: then most of its time went elsewhere."""


def _outside(analysis: Analysis) -> dict[str, Any]:
    """What took most of a recorded run of which the measured steps are a small part; empty for others.

    The import of torch is left out, because every program has it."""
    ledger = analysis.ledger
    if ledger is None or analysis.is_trace or analysis.info.level == "light":
        return {}
    seconds = {period: ledger.own_seconds(period) for period in Period}
    whole = sum(seconds.values())
    if not seconds[Period.STEPS] or seconds[Period.STEPS] >= SMALL_PART * whole:
        return {}
    cells = [*ledger.of(Period.BEFORE), *ledger.of(Period.AFTER)]
    parts = tuple(part for part in _run_parts(cells, whole) if (part.owner, part.package) != _TORCH)
    return {"parts": parts, "steps_share": seconds[Period.STEPS] / whole}


def _diagnose_unseen(analysis: Analysis) -> RunDiagnosis:
    """What took most of a run in which nothing ended a step: each import, and each line with its kind of time."""
    ledger = analysis.ledger
    assert ledger is not None
    own = sum(map(ledger.own_seconds, Period))
    return RunDiagnosis(RunVerdict.NO_STEP, seconds=own, parts=_run_parts(ledger.of(Period.UNSEEN), own))


def _run_parts(cells: Iterable[Cell], own: float) -> tuple[RunPart, ...]:
    """The imports, and the lines with whose code they run, that take most of these cells, as shares of the program's
    `own` time."""
    groups = defaultdict[tuple[Owner, str, Site | None, str], list[Cell]](list)
    for cell in cells:
        if cell.is_own and cell.kind != NOT_RECORDED:
            groups[cell.owner, cell.package, cell.place, _NAMED_KINDS.get(cell.kind, cell.kind)].append(cell)
    parts = []
    for (owner, package, site, kind), members in groups.items():
        seconds = sum(cell.seconds for cell in members)
        largest = max(members, key=lambda cell: cell.seconds)
        function = largest.function if largest.seconds > MOST * seconds else ""
        if own and seconds >= WORTH_NAMING * own and (site is not None or kind != UNATTRIBUTED):
            parts.append(RunPart(seconds, seconds / own, kind, owner, package, site, function))
    parts.sort(key=lambda part: -part.seconds)
    return tuple(parts[:MAX_CAUSES])


def hides_waits(analysis: Analysis) -> bool:
    """Whether Python of this run may be a wait inside CUDA: calls toward the device were not recorded."""
    launch = analysis.breakdown.get("launch")
    return analysis.info.facts.get("device") == "cuda" and (launch is None or launch.value is None)


def _diagnose_host(analysis: Analysis, reason: Notice | None) -> RunDiagnosis:
    """The diagnosis without a device queue: what the host's time was spent on."""
    parts, total = _parts(analysis)
    if not total:
        if analysis.info.facts.get("device") == "cpu" and analysis.info.level == "light":
            return RunDiagnosis(RunVerdict.STEP_TIME_ONLY, seconds=analysis.value("step_time") or 0.0)
        return RunDiagnosis(RunVerdict.UNKNOWN, reason=reason)
    computing, unknown = (parts.get(name, 0.0) / total for name in ("compute", UNATTRIBUTED))
    every = _step_causes(analysis)
    causes = _named(every, 0.0 if any(cause.category == "compute" for cause in every) else computing)
    if any(cause.category == UNATTRIBUTED for cause in causes):
        unknown = 0.0
    largest = causes[0] if causes else None
    leads = largest is not None and (
        largest.category in ("compute", UPDATE) or (largest.category in _NOT_TRAINING and largest.share >= AFTER_LEADS)
    )
    if largest and largest.share >= unknown and (leads or computing < COMPUTING_LEADS):
        verdict = RunVerdict.CAUSE
    elif computing >= unknown:
        verdict = RunVerdict.COMPUTING
    else:
        verdict = RunVerdict.UNKNOWN_STEP
    compute = _category_cause(analysis, "compute", parts["compute"], total) if parts.get("compute") else None
    return RunDiagnosis(
        verdict,
        share=computing,
        low=compute.low if compute else None,
        high=compute.high if compute else None,
        causes=causes,
        unknown=_unknown_share(analysis, unknown) if unknown >= MUCH_UNKNOWN else None,
        spikes=analysis.spikes if analysis.spikes and (analysis.spikes.lines or analysis.spikes.stage) else None,
        driver=next((place for place in analysis.locations.get("", ()) if place.library), None),
        operators=_operators(analysis, parts, total),
        is_rest_small=all(cause.share < WORTH_NAMING for cause in every if cause.category != "compute"),
        is_whole_trace=analysis.step is not None and analysis.step.kind is StepKind.WHOLE_TRACE,
    )


def _operators(analysis: Analysis, parts: Mapping[str, float], total: float) -> Cause | None:
    """Computing with its places, where it takes most of the time in which the program had a core."""
    own = total - sum(parts.get(name, 0.0) for name in CORELESS_CATEGORIES)
    computing = parts.get("compute", 0.0)
    mostly = computing and computing >= COMPUTING_LEADS * own
    return _category_cause(analysis, "compute", computing, total) if mostly else None


def _unknown_share(analysis: Analysis, share: float) -> UnknownShare:
    line = max(analysis.lines, key=lambda each: each.unrecorded, default=None)
    is_at_line = line is not None and line.unrecorded > 0
    return UnknownShare(
        share,
        analysis.samples,
        has_samples_outside=any(period.lines for period in analysis.startup_teardown),
        in_trace=analysis.is_trace,
        site=line.site if line and is_at_line else None,
        site_share=min(share, line.unrecorded / (analysis.value("step_time") or 1.0)) if line and is_at_line else 0.0,
        is_whole=any(
            warning.code == "unrecorded-time" and warning.values["of"] == "anything" for warning in analysis.warnings
        ),
    )


def _parts(analysis: Analysis) -> tuple[dict[str, float], float]:
    """Seconds of each category, and of a step. What runs in the phases of `_whole_phases` is not in the categories:
    only time without a core is, because it is no work of these phases."""
    parts = {name: measure.value or 0.0 for name, measure in analysis.breakdown.items()}
    total = sum(parts.values())
    for phase in _whole_phases(analysis):
        for name, seconds in phase.categories.items():
            if name not in CORELESS_CATEGORIES:
                parts[name] = max(0.0, parts.get(name, 0.0) - seconds)
    return parts, total


def _whole_phases(analysis: Analysis) -> list[Phase]:
    """Compilation, and an optimizer that takes much of a step: the phases of which nothing but the whole is named.

    On a GPU the host may wait in the optimizer, so there its time says little.
    """
    on_cpu = analysis.info.facts.get("device") == "cpu"
    return [
        phase
        for phase in analysis.phases
        if (phase.name == Stage.COMPILE and phase.share >= NAMED)
        or (phase.name == UPDATE and phase.low >= MUCH_UPDATING and on_cpu)
    ]


def _named(causes: list[Cause], computing: float = 0.0) -> tuple[Cause, ...]:
    """The causes to name, the largest first: all from NAMED on; a single smaller one where it is worth it.

    Time in which the program got no core says nothing about the program: beside it, causes count by their share of the
    remaining time, and it never displaces them. Phases overlap the categories: one that would make the sum exceed the
    step is left out, and so are a category below NAMED beside a phase, and a phase of which a category takes most.

    :param computing: share of a step, which is named too.
    """
    waits = max((cause.share for cause in causes if cause.category in _OUTWEIGHS_PHASES), default=0.0)

    own = 1.0 - sum(cause.share for cause in causes if cause.category in CORELESS_CATEGORIES)

    def weighted(cause: Cause) -> float:
        if cause.category == AFTER_OPTIMIZER and waits >= MOST * own * cause.share:
            return 0.0
        return cause.share * (_PHASE_WEIGHT if cause.category in (UPDATE, *_NOT_TRAINING) else 1.0)

    named, total = list[Cause](), computing
    for cause in sorted(causes, key=lambda cause: -weighted(cause)):
        smallest = (NAMED if named else WORTH_NAMING) * (1.0 if cause.category in CORELESS_CATEGORIES else own)
        # a stage is time of all categories, and waits for a core are time of all phases: their sentences say so
        overlaps = cause.category in (UPDATE, *INTERRUPTIONS, *CORELESS_CATEGORIES)
        fits = not named or overlaps or total + cause.share <= 1.0 + _ROUNDING
        if not fits and cause.category != AFTER_OPTIMIZER and cause.share >= NAMED:
            fits = overlaps = any(other.category == AFTER_OPTIMIZER for other in named)
        is_chance = (bool(named) or computing > cause.share) and _may_be_chance(cause, own)
        is_large = cause.share >= smallest - _ROUNDING
        if is_large and weighted(cause) and fits and not is_chance and len(named) < MAX_CAUSES:
            named.append(cause)
            total += 0.0 if overlaps else cause.share
    return tuple(named)


def _may_be_chance(cause: Cause, own: float) -> bool:
    """Whether so few samples showed a cause that it may not exist; `own` is the share of a step with a core."""
    return cause.low is not None and cause.low < _NOTHING * own


def _step_causes(analysis: Analysis) -> list[Cause]:
    """Everything in a step that could be removed."""
    parts, total = _parts(analysis)
    operators = parts.get("compute", 0.0) + parts.get("framework", 0.0)
    names = [*_STEP_CATEGORIES, "input"]
    if analysis.is_trace and operators >= WORTH_NAMING * total:
        names.append(UNATTRIBUTED)
    causes = [
        *(_category_cause(analysis, name, parts[name], total) for name in names if parts.get(name)),
        *(_phase_cause(phase) for phase in analysis.phases if _is_cause(phase, analysis)),
    ]
    return [
        *causes,
        *_slow_computing(analysis, parts.get("compute", 0.0), total),
    ]


def _is_cause(phase: Phase, analysis: Analysis) -> bool:
    """Whether the phase is a cause itself; other work without gradients may be an update of parameters."""
    if phase.name == AFTER_OPTIMIZER:
        return phase.low >= WORTH_NAMING
    if phase.name == UPDATE:
        return phase in _whole_phases(analysis)
    return phase.name in INTERRUPTIONS and phase.name != Stage.NO_GRADIENTS


def _phase_cause(phase: Phase) -> Cause:
    """The time of a phase as a cause. Stages and the optimizer are recorded exactly, so they need no samples; the phase
    after the optimizer is counted as the categories are, without waits for a core."""
    location = None
    if phase.site is not None:
        low = 0.0 if phase.name == AFTER_OPTIMIZER else 1.0  # the samples of all others lie in a recorded interval
        location = Location(LocationKind.LINE, (phase.site,), 1.0, low, 1.0, calls=phase.calls)
    cause = Cause(phase.name, phase.share, location=location, further=phase.further)
    if phase.name == AFTER_OPTIMIZER:
        own = 1.0 - sum(phase.categories.get(name, 0.0) for name in CORELESS_CATEGORIES) / phase.seconds_per_step
        return replace(cause, share=own * phase.share, low=own * phase.low, high=own * phase.high)
    return replace(cause, notice=Notice("update-with-closure")) if phase.name == UPDATE and phase.has_closure else cause


def _slow_computing(analysis: Analysis, computing: float, total: float) -> Iterator[Cause]:
    """Computing that could be faster for a reason that is known exactly."""
    double = analysis.info.facts.get("float64_parameters")
    if isinstance(double, int | float) and double >= MOST and computing:
        cause = _category_cause(analysis, "compute", computing, total)
        yield replace(cause, location=None, further=(), notice=Notice("float64", {"share": float(double)}))


def _largest_part(parts: Iterable[InputPart], share: float) -> InputPart | None:
    """What the training process does itself, where it takes most of the input's `share`; else what takes most time."""
    making = [part for part in parts if part.name not in (WAITING_FOR_INDEX, WAITING_FOR_WORKERS)]
    own = [part for part in making if part.where == "main process" and part.share > MOST * share]
    return max(own or making, key=lambda part: part.seconds_per_step, default=None)


def _category_cause(analysis: Analysis, category: str, seconds: float, total: float) -> Cause:
    """The time of a category as a cause, of which `seconds` count; their places are known only where most count."""
    measure, notice = analysis.breakdown[category], None
    counted = seconds / (measure.value or 1.0)
    if analysis.is_trace and category in ("python", UNATTRIBUTED) and not analysis.locations.get(category):
        notice = Notice("between-operators")
    elif category == "python" and hides_waits(analysis):
        notice = Notice("python-or-device-wait")
    facts = analysis.info.facts
    # a program with an engine waits for its workers, not for a device
    if category == "sync" and facts.get("device") == "cpu" and facts.get("engine", "inline") != "inline":
        notice = Notice("waits-for-workers")
    if category in CORELESS_CATEGORIES:
        notice = excess_threads(analysis, category)
    low, high = (None if end is None else min(1.0, counted * end / total) for end in (measure.low, measure.high))
    places = analysis.locations.get(category, ()) if counted >= NEARLY_ALL else ()
    main = next((place for place in places[:1] if place.share > MOST), None)
    further = places[1:] if main else places
    loader = _largest_part(analysis.input, seconds / total) if category == "input" else None
    return Cause(category, seconds / total, low, high, main, further, notice, loader=loader)


def excess_threads(analysis: Analysis, category: str) -> Notice | None:
    """The threads that compute, where there are more than cores, or than the CPU quota allows."""
    facts, host = analysis.info.facts, analysis.info.host
    threads, cores, quota = facts.get("torch_threads"), facts.get("cores", host.get("cores")), host.get("cpu_quota")
    if not isinstance(threads, int) or not isinstance(cores, int):
        return None
    of_all = threads * (len(analysis.ranks.ranks) if analysis.ranks else 1)
    if category == "throttled":
        exceeds = isinstance(quota, (int, float)) and of_all > max(1, quota)
        return Notice("more-threads-than-quota", {"threads": of_all, "quota": quota}) if exceeds else None
    shared = facts.get("rank_cores")
    if analysis.ranks and isinstance(shared, int):
        threads, cores = of_all, shared
    elif analysis.ranks and threads <= cores:  # each rank may be bound to cores of its own
        threads, cores = of_all, max(cores, host.get("cores", 0))
    if threads > cores:
        return Notice("more-threads-than-cores", {"threads": threads, "cores": cores})
    return Notice("threads-spin") if threads > 1 and facts.get("omp_wait_policy") == "active" else None
