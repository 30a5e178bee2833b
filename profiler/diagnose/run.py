"""Tells the outcome of a run: how busy a device was, or what comes first of what takes the time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from profiler.analyse.ledger.cells import GARBAGE_KIND, IMPORT_KIND, NOT_RECORDED, Cell, Owner, Period
from profiler.analyse.model import (
    UNATTRIBUTED,
    Analysis,
    ThreadState,
)
from profiler.core.facts import stated_device
from profiler.core.notice import Notice
from profiler.diagnose.device import BUSY, MAX_LISTED, MOST, diagnose_device
from profiler.diagnose.model import (
    MUCH_UNKNOWN,
    RECORDED_COMPUTING,
    WORTH_NAMING,
    RunDiagnosis,
    RunPart,
    RunVerdict,
    UnknownShare,
)
from profiler.run.model import Site, StepKind

_STANDING_BY: Final = (ThreadState.IDLE, ThreadState.CHILD)
"""States of a launcher while its children work."""


def diagnose_run(analysis: Analysis) -> RunDiagnosis:
    """Why the device was idle, that it was busy, or why that is not known; and which rank makes the others wait."""
    found, peak = _diagnose_rank(analysis), analysis.value("peak_share")
    if found.verdict is not RunVerdict.NO_STEP:
        found = replace(found, **_outside(analysis))
    is_whole_trace = analysis.step is not None and analysis.step.kind is StepKind.WHOLE_TRACE
    return replace(
        found, ranks=analysis.ranks, findings=analysis.findings, peak_share=peak, is_whole_trace=is_whole_trace
    )


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
    device = stated_device(analysis.info.facts, analysis.info.devices)
    return RunDiagnosis(RunVerdict.DEVICE_BUSY_SAMPLED, device, busy.value)


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
    return tuple(parts[:MAX_LISTED])


def _diagnose_host(analysis: Analysis, reason: Notice | None) -> RunDiagnosis:
    """The diagnosis without a device queue: what comes first of what took the host's time."""
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
        unknown=_unknown_share(analysis, unknown) if unknown >= MUCH_UNKNOWN else None,
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
        is_whole=analysis.is_undivided,
    )
