"""Tells the outcome of a run: how busy a device was, or what comes first of what takes the time."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.measures import UNATTRIBUTED
from profiler.core.errors import Notice
from profiler.core.facts import stated_device
from profiler.diagnose.device import BUSY, diagnose_device, missing_device
from profiler.diagnose.model import NAMED, RECORDED_COMPUTING, RunDiagnosis, RunVerdict, UnknownShare, busy_thread
from profiler.diagnose.rest import steps_share
from profiler.run.model import StepKind


def diagnose_run(analysis: Analysis) -> RunDiagnosis:
    """Return why the device was idle, that it was busy, or why that is not known; and which rank makes the others
    wait."""
    found, peak = _diagnose_rank(analysis), analysis.value("peak_share")
    if found.verdict is not RunVerdict.NO_STEP:
        found = replace(found, steps_share=steps_share(analysis.ledger) if analysis.ledger else 0.0)
    is_whole_trace = analysis.step is not None and analysis.step.kind is StepKind.WHOLE_TRACE
    return replace(
        found, ranks=analysis.ranks, findings=analysis.findings, peak_share=peak, is_whole_trace=is_whole_trace
    )


def _diagnose_rank(analysis: Analysis) -> RunDiagnosis:
    if analysis.step is not None and analysis.step.is_whole_run:
        return RunDiagnosis(RunVerdict.NO_STEP)  # its findings tell what took most of the run
    step = analysis.measures.get("step_time")
    if step is None or step.value is None:
        if thread := busy_thread(analysis):
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
    device = stated_device(analysis.info.facts, analysis.info.devices)
    return RunDiagnosis(RunVerdict.DEVICE_BUSY_SAMPLED, device, busy.value)


def _diagnose_host(analysis: Analysis, reason: Notice | None) -> RunDiagnosis:
    """Return the diagnosis without a device queue: what comes first of what took the host's time."""
    if missing := missing_device(analysis):
        return RunDiagnosis(RunVerdict.DEVICE_UNRECORDED, reason=missing)
    if not sum(measure.value or 0.0 for measure in analysis.breakdown.values()):
        if analysis.info.facts.get("device") == "cpu" and analysis.info.level == "light":
            return RunDiagnosis(RunVerdict.STEP_TIME_ONLY, seconds=analysis.value("step_time") or 0.0)
        return RunDiagnosis(RunVerdict.UNKNOWN, reason=reason)
    first = next((finding for finding in analysis.findings if finding.is_told), None)
    unknown = analysis.unattributed_share or 0.0
    verdict = RunVerdict.CAUSE
    if first is None:
        verdict = RunVerdict.UNKNOWN_STEP
    elif first.rule.name in _VERDICTS:
        verdict = _VERDICTS[first.rule.name]
    return RunDiagnosis(
        verdict,
        share=first.share if first else unknown,
        unknown=_unknown_share(analysis, unknown) if unknown >= NAMED else None,
        spikes=analysis.spikes if analysis.spikes and (analysis.spikes.lines or analysis.spikes.stage) else None,
        driver=analysis.driver,
    )


_VERDICTS: Final = {
    "compute": RunVerdict.COMPUTING,
    RECORDED_COMPUTING: RunVerdict.COMPUTING,
    UNATTRIBUTED: RunVerdict.UNKNOWN_STEP,
}


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
    )
