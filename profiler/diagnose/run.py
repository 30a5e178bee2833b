"""Diagnoses a run: how idle the device was and what the host did meanwhile, or what a step is spent on."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from profiler.analyse.model import (
    AFTER_OPTIMIZER,
    MIN_SAMPLES,
    WAIT_CATEGORIES,
    WAITING_FOR_INDEX,
    WAITING_FOR_WORKERS,
    Analysis,
    Spikes,
    ThreadState,
)
from profiler.core.facts import stated_device
from profiler.core.notice import Notice
from profiler.diagnose.device import BUSY, diagnose_device
from profiler.diagnose.model import WORTH_NAMING, Cause, RunDiagnosis, RunVerdict, UnknownShare
from profiler.run.model import Site

MUCH_UNKNOWN: Final = 0.1
"""Share of a step from which what is unknown is named first: it may be larger than any cause."""
COMPUTING_LEADS: Final = 0.6
"""Share of a step from which computing is named before what can be removed beside it."""
AFTER_LEADS: Final = 0.2
"""Share of a step from which what runs after the optimizer is named first, though computing may take most of it: it is
not part of the training."""
_STANDING_BY: Final = (ThreadState.IDLE, ThreadState.CHILD)
"""States of a launcher while its children work."""
_STEP_CATEGORIES: Final = ("sync", "copy", "log", "checkpoint", "python", "framework", "launch", *WAIT_CATEGORIES)
_BESIDE_A_DEVICE: Final = ("input", "log", "checkpoint")
"""Categories that take the host's time whether the device is busy or not; in all others it may be waiting for it."""
_PHASE_WEIGHT: Final = 1.25
"""The time after the optimizer is also time of some categories: if both are about equal, the phase is more
informative."""


def diagnose_run(analysis: Analysis) -> RunDiagnosis:
    """Why the device was idle, that it was busy, or why that is not known; and which rank makes the others wait."""
    return replace(_diagnose_rank(analysis), ranks=analysis.ranks)


def _diagnose_rank(analysis: Analysis) -> RunDiagnosis:
    """The diagnosis of the analysed rank."""
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
    host_cause = _largest([cause for cause in _step_causes(analysis) if cause.category in _BESIDE_A_DEVICE])
    device = stated_device(analysis.info.facts, analysis.info.devices)
    return RunDiagnosis(RunVerdict.DEVICE_BUSY_SAMPLED, device, busy.value, (host_cause,) if host_cause else ())


def hides_waits(analysis: Analysis) -> bool:
    """Whether Python of this run may be a wait inside CUDA: calls toward the device were not recorded."""
    launch = analysis.breakdown.get("launch")
    return analysis.info.facts.get("device") == "cuda" and (launch is None or launch.value is None)


def _diagnose_host(analysis: Analysis, reason: Notice | None) -> RunDiagnosis:
    """The diagnosis without a device queue: what the host's time was spent on."""
    if analysis.phases and (diagnosis := _diagnose_step(analysis)):
        return diagnosis
    parts, total = _parts(analysis)
    if not total:
        if analysis.info.facts.get("device") == "cpu" and analysis.info.level == "light":
            return RunDiagnosis(RunVerdict.STEP_TIME_ONLY, seconds=analysis.value("step_time") or 0.0)
        return RunDiagnosis(RunVerdict.UNKNOWN, reason=reason)
    largest = max(parts, key=lambda name: parts[name])
    share = parts[largest] / total
    if largest == "unattributed":
        return RunDiagnosis(RunVerdict.UNKNOWN_STEP, unknown=_unknown_share(analysis, share))
    facts = analysis.info.facts
    # a program with an engine waits for its workers, not for a device
    if largest == "sync" and facts.get("device") == "cpu" and facts.get("engine", "inline") != "inline":
        return RunDiagnosis(RunVerdict.WAITING_FOR_WORKERS, share=share)
    category = "python-or-wait" if largest == "python" and hides_waits(analysis) else largest
    seconds = parts[largest]
    return RunDiagnosis(RunVerdict.LARGEST_CATEGORY, share=share, category=category, seconds=seconds, reason=reason)


def _diagnose_step(analysis: Analysis) -> RunDiagnosis | None:
    """The largest part of a step that can be removed, with its line; None where nothing stands out."""
    parts, total = _parts(analysis)
    if not total:
        return None
    computing = parts.get("compute", 0.0) / total
    cause, unknown = _largest(_step_causes(analysis)), parts.get("unattributed", 0.0) / total
    spikes: Spikes | None = analysis.spikes if analysis.spikes and analysis.spikes.lines else None
    is_unknown = unknown >= MUCH_UNKNOWN or unknown > max(cause.share if cause else 0.0, computing)
    after = cause is not None and cause.category == AFTER_OPTIMIZER and cause.share >= AFTER_LEADS
    if computing >= BUSY and not after:
        verdict = RunVerdict.COMPUTING
    elif cause is None:
        verdict = RunVerdict.UNKNOWN_STEP
        if not is_unknown and not spikes:
            return None
    elif computing >= COMPUTING_LEADS and not after:
        verdict = RunVerdict.COMPUTING_AND_CAUSE
    else:
        verdict = RunVerdict.CAUSE
    return RunDiagnosis(
        verdict,
        share=computing,
        causes=(cause,) if cause else (),
        unknown=_unknown_share(analysis, unknown) if is_unknown else None,
        spikes=spikes,
    )


def _unknown_share(analysis: Analysis, share: float) -> UnknownShare:
    return UnknownShare(share, _samples(analysis), any(period.lines for period in analysis.startup_teardown))


def _samples(analysis: Analysis) -> int:
    return sum(line.samples for line in analysis.lines)


def _parts(analysis: Analysis) -> tuple[dict[str, float], float]:
    """Seconds of each category, and their sum."""
    parts = {name: measure.value or 0.0 for name, measure in analysis.breakdown.items()}
    return parts, sum(parts.values())


def _largest(causes: list[Cause]) -> Cause | None:
    def weighted(cause: Cause) -> float:
        return cause.share * (_PHASE_WEIGHT if cause.category == AFTER_OPTIMIZER else 1.0)

    largest = max(causes, key=weighted, default=None)
    return largest if largest is not None and largest.share >= WORTH_NAMING else None


def _step_causes(analysis: Analysis) -> list[Cause]:
    """Everything in a step that could be removed."""
    parts, total = _parts(analysis)
    causes = [
        Cause(name, parts[name] / total, _main_line(analysis, name)) for name in _STEP_CATEGORIES if parts.get(name)
    ]
    if parts.get("input"):
        site = next((phase.site for phase in analysis.phases if phase.name == "data"), None)
        making = [part for part in analysis.input if part.name not in (WAITING_FOR_INDEX, WAITING_FOR_WORKERS)]
        loader = max(making, key=lambda part: part.seconds_per_step, default=None)
        site = site or _main_line(analysis, "input")
        causes.append(Cause("input", parts["input"] / total, site, loader=loader))
    if _samples(analysis) >= MIN_SAMPLES:
        causes += [
            Cause(AFTER_OPTIMIZER, phase.share, phase.site, phase.calls)
            for phase in analysis.phases
            if phase.name == AFTER_OPTIMIZER
        ]
    return causes


def _main_line(analysis: Analysis, category: str) -> Site | None:
    """The line with most seconds of a category, in the function with most of them."""
    functions: dict[tuple[str, str], float] = {}
    for line in analysis.lines:
        key = line.site.file, line.site.function
        functions[key] = functions.get(key, 0.0) + line.categories.get(category, 0.0)
    largest = max(functions, key=lambda key: functions[key], default=None)
    lines = [line for line in analysis.lines if (line.site.file, line.site.function) == largest]
    lines = [line for line in lines if line.categories.get(category)]
    return max(lines, key=lambda line: line.categories[category]).site if lines else None
