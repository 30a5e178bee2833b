"""Shows what takes the time of a run: each finding with its lines and its cost, and of a cause what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from profiler.analyse.finding import Finding, FindingChange, FindingState, compare_findings
from profiler.analyse.model import Analysis
from profiler.core.plugins import entry_points
from profiler.core.units import seconds, share
from profiler.diagnose.model import NAMED
from profiler.report.blocks import NOTHING, Block, Cell, Group, Items, Table, Text
from profiler.report.build import section
from profiler.report.finding_text import (
    doubt_text,
    finding_text,
    gain_text,
    left_out_text,
    not_judged_text,
    of_whole_run,
    prediction_texts,
    state_text,
)
from profiler.report.model import ReportInput
from profiler.report.table import Field, make_table
from profiler.report.text import at, listed

_NOTHING = "No rule found a cause that is large enough to name. What is computed may still be more than it needs."
_BRIEF = 2
"""Findings that a terminal shows by default."""
_NOTE = (
    "The last column tells how many times as fast a step is without the cause. That is predicted, unless it is marked "
    "as measured. "
    "A finding about the same time as one above it stands after all others. "
    "Time that no rule explains has no such figure. Costs and shares are of the program's own time: without waits for "
    "a core, and without recording."
)


def _cause(finding: Finding) -> Cell:
    text = finding_text(finding)
    same = f"same time as {finding.overlaps}" if finding.overlaps else ""
    note = "; ".join(filter(None, (text.place, same, doubt_text(finding))))
    return Cell(text.title, note=note, source=finding.sites[0].source if finding.sites else "")


def _cost(finding: Finding) -> Cell:
    if finding.is_of_run:
        return Cell(seconds(finding.seconds), note=f"{share(finding.share)} of the run") if finding.share else Cell("")
    interval = "" if finding.low == finding.high else f" ({100 * finding.low:.0f} to {share(finding.high)})"
    return Cell(seconds(finding.seconds), note=share(finding.share) + interval, sort=finding.seconds)


_FIELDS = (
    Field[Finding]("What", _cause),
    Field[Finding]("Cost per step", _cost, number=True),
    Field[Finding]("Speed without it", lambda finding: Cell(gain_text(finding), sort=finding.gain), number=True),
)


def _what_to_do(finding: Finding) -> Iterator[Items]:
    """The cure of a finding, and the figures that show the cause."""
    text = finding_text(finding)
    if text.code:
        yield Items((text.fix,), text.title, text.code)
        yield Items(text.evidence)
    else:
        yield Items((text.fix, *text.evidence), text.title)


def _in_full(finding: Finding, cures: Iterable[Any]) -> Group:
    """What to do about a finding and what that can give, beside the figures and lines that show it."""
    text = finding_text(finding)
    gains = (*(f"Gain of {prediction}" for prediction in prediction_texts(finding)), left_out_text(finding))
    gains = tuple(filter(None, gains))
    examples = (
        f"Example: the bundled trainer's fix {fix.name}, in {listed(fix.files)}."
        for fix in cures
        if fix.rule == finding.rule.name
    )
    cure = (
        (Items((text.fix,), code=text.code), Items(gains))
        if text.code and gains
        else (Items((text.fix, *gains), code=text.code),)
    )
    shows = (*text.evidence, *_lines(finding), *examples)
    return Group(((text.title, cure), *([("What shows it", (Items(shows),))] if shows else ())))


def _lines(finding: Finding) -> Iterator[str]:
    """The lines of a finding, each with its text where that was recorded."""
    places = [at(site).removeprefix(" at ") for site in finding.sites]
    texts = [site.source for site in finding.sites]
    if any(texts):
        yield from (f"{place}: {source}" if source else place for place, source in zip(places, texts, strict=True))
    elif places:
        yield f"{'Line' if len(places) == 1 else 'Lines'}: {listed(places)}."


def _brief(report_input: ReportInput) -> Iterator[Block]:
    analysis = report_input.analysis
    if analysis is not None:  # the verdict has the figures of those that matter
        first = [each for each in analysis.findings if each.has_cure][:_BRIEF]
        for finding in (*first, *(each for each in of_whole_run(analysis.findings) if each not in first)):
            yield from _what_to_do(finding)
    else:
        yield from _changes(report_input)


_CHANGES_NOTE = (
    "By the breakdown passes. Causes are the same if the same rule names them. A cause is new or cured only if the "
    "steps of the other side are short enough to name such a cost."
)
_JUDGED = {FindingState.NEW: "bad", FindingState.GREW: "bad", FindingState.SHRANK: "good", FindingState.CURED: "good"}


def _changes(report_input: ReportInput) -> Iterator[Table]:
    """What became of the findings about the first side on each other one, where both have a breakdown pass."""
    first, *others = report_input.sides

    def cost(finding: Finding | None) -> Cell:
        return Cell(NOTHING) if finding is None else _cost(finding)

    before = first.detailed.judged
    for side in others:
        after = side.detailed.judged
        if changes := compare_findings(before, after) if before and after else ():
            fields = (
                Field[FindingChange]("Cause", lambda change: _cause(change.finding)),
                Field[FindingChange](first.label, lambda change: cost(change.before), number=True, tone=first.tone),
                Field[FindingChange](side.label, lambda change: cost(change.after), number=True, tone=side.tone),
                Field[FindingChange](
                    "Now", lambda change: Cell(state_text(change), judged=_JUDGED.get(change.state, ""))
                ),
            )
            yield make_table(f"Causes in {first.label} and {side.label}, cost per step", fields, changes, _CHANGES_NOTE)


def _is_known(analysis: Analysis) -> bool:
    """Whether nearly all of a step was recorded, so that a cause would have been found."""
    if analysis.value("device_utilization") is not None and not analysis.idle:
        return False
    unknown = analysis.unattributed_share
    is_measured = bool(analysis.idle) or any(measure.value for measure in analysis.breakdown.values())
    return is_measured and unknown is not None and unknown < NAMED


@section("findings", "What makes it slow", 12, "evidence", brief=_brief)
def findings(report_input: ReportInput) -> Iterator[Block]:
    """The findings of a single run, and the rules that cannot judge it; of a comparison what became of them."""
    analysis = report_input.analysis
    if report_input.comparison is not None:
        yield from _changes(report_input)
    if analysis is None or not (analysis.breakdown or analysis.idle):
        return
    if len(analysis.findings) > 1:
        yield make_table("What takes the time", _FIELDS, analysis.findings, _NOTE)
    if not any(finding.has_cure for finding in analysis.findings) and _is_known(analysis):
        yield Text(_NOTHING)
    cures = [fix for fixes in entry_points("fixes").values() for fix in fixes]
    yield from (_in_full(finding, cures) for finding in analysis.findings if finding.has_cure)
    if items := tuple(map(not_judged_text, analysis.not_judged)):
        yield Items(items, "Rules that cannot judge this run")


PLUGIN = findings
