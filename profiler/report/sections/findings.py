"""The findings of a run: each cause with its lines, its cost, what its cure can give, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from profiler.analyse.finding import Finding, NotJudged
from profiler.analyse.model import Analysis
from profiler.core.units import seconds, share
from profiler.report.blocks import Block, Cell, Items, Text
from profiler.report.build import section
from profiler.report.finding_text import doubt_text, finding_text, gain_text, not_judged_text
from profiler.report.model import ReportInput
from profiler.report.table import Field, make_table

_MUCH_UNKNOWN = 0.1
"""Share of a step from which a cause may hide in what was not recorded."""
_NOTHING = "No rule found a cause that is large enough to name. What is computed may still be more than it needs."
_BRIEF = 2
"""Findings that a terminal shows by default."""
_NOTE = (
    "The gain compares the step with one without the time that the cause costs, but with what the cure needs instead. "
    "A finding about the same time as one above it stands after all others."
)


def _cause(finding: Finding) -> Cell:
    text = finding_text(finding)
    same = f"same time as {finding.overlaps}" if finding.overlaps else ""
    return Cell(text.title, note="; ".join(filter(None, (text.place, same, doubt_text(finding)))))


def _cost(finding: Finding) -> Cell:
    interval = "" if finding.low == finding.high else f" ({100 * finding.low:.0f} to {share(finding.high)})"
    return Cell(seconds(finding.seconds), note=share(finding.share) + interval, sort=finding.seconds)


_FIELDS = (
    Field[Finding]("Cause", _cause),
    Field[Finding]("Cost per step", _cost, number=True),
    Field[Finding]("To gain", lambda finding: Cell(gain_text(finding), sort=finding.gain), number=True),
)


def _what_to_do(findings: Iterable[Finding]) -> Iterator[Items]:
    for finding in findings:
        text = finding_text(finding)
        yield Items(tuple(filter(None, (text.fix, text.code, *text.evidence))), text.title)


def _not_judged(rules: Iterable[NotJudged]) -> Iterator[Items]:
    if items := tuple(map(not_judged_text, rules)):
        yield Items(items, "Rules that cannot judge this run")


def _brief(report_input: ReportInput) -> Iterator[Block]:
    analysis = report_input.analysis
    if analysis is not None:  # the verdict has the figures of those that matter
        yield from _what_to_do(analysis.findings[:_BRIEF])


def _is_known(analysis: Analysis) -> bool:
    """Whether nearly all of a step was recorded, so that a cause would have been found."""
    if analysis.value("device_utilization") is not None and not analysis.idle:
        return False
    unknown, step = analysis.breakdown.get("unattributed"), analysis.value("step_time")
    if not step or (not analysis.idle and not any(measure.value for measure in analysis.breakdown.values())):
        return False
    return unknown is None or (unknown.value is not None and unknown.value < _MUCH_UNKNOWN * step)


@section("findings", "What makes it slow", 12, brief=_brief)
def findings(report_input: ReportInput) -> Iterator[Block]:
    """The findings of a single run, and the rules that cannot judge it."""
    analysis = report_input.analysis
    if analysis is None or not (analysis.breakdown or analysis.idle):
        return
    if analysis.findings:
        yield make_table("Causes, the largest gain first", _FIELDS, analysis.findings, _NOTE)
    elif _is_known(analysis):
        yield Text(
            "No rule found a cause that is large enough to name. What is computed may still be more than it needs."
        )
    yield from _what_to_do(analysis.findings)
    yield from _not_judged(analysis.not_judged)


PLUGIN = findings
