"""Shows the verdict in full with the numbers behind it, and each finding with its cost, its lines and its cure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Comparison, Ratio
from profiler.analyse.model.finding import Finding, FindingChange, FindingState, compare_findings
from profiler.core.metrics import RATES, is_share, label
from profiler.core.plugins import entry_points
from profiler.core.units import seconds, share
from profiler.diagnose.model import NAMED
from profiler.report import text as words
from profiler.report.blocks import NOTHING, Block, Callout, Cell, Column, Group, Items, Table, Text
from profiler.report.build import section
from profiler.report.category_text import phase_label
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
from profiler.report.model import (
    HOST_MEASURES,
    ReportInput,
    ReportSide,
    ended_early,
    exit_status,
    key_measures,
    noisy_machine,
)
from profiler.report.notices import NO_REASON, describe, different_results, mismatches, same_results, uncompared_results
from profiler.report.sections.lines import compare_lines, compare_phases
from profiler.report.table import (
    Field,
    bound_cell,
    compare_table,
    factor,
    make_table,
    measure_cell,
    missing_cell,
    phrase,
    share_cell,
)

_SINGLE_RUN_MEASURES: Final = ("device_utilization", "peak_share", *HOST_MEASURES)
"""Counters stand in a table of their own."""


def _brief(report_input: ReportInput) -> Iterator[Block]:
    if not report_input.without_steps:
        over = f"over {report_input.sides[0].label}, {report_input.rate_phrase(report_input.rate)}"
        for side in report_input.sides[1:]:
            cell = _ratio_cell(report_input.ratio(side.label, report_input.rate))
            yield Text(f"{side.label} {over}: {cell.one_line()}{'' if cell.missing else f' ({cell.note})'}")
        yield from _tables(report_input)
        yield from compare_lines(report_input.sides)


@section("numbers", "In numbers", 11, "time", brief=_brief)
def numbers(report_input: ReportInput) -> Iterator[Block]:
    """Show the key measures of a run; of a comparison what the sides measure, and the ratios."""
    if not report_input.without_steps:
        yield from _tables(report_input)


def _tables(report_input: ReportInput) -> Iterator[Table]:
    if report_input.comparison is None:
        side = report_input.sides[0]
        rate = next((name for name in RATES if side.has(name)), "")
        shown = measure_cell(side.measure(rate) if rate else replace(side.measure(RATES[0]), value=None))
        steps = None if side.measure("tokens_per_s").value is None else _known(side, "steps_per_s")
        # the share of a step in which the training thread waits for data or makes it
        waits = next((phase.share for phase in side.detailed.phases if phase.name == "data"), None)
        data = None if waits is None else (phase_label("data").capitalize(), share_cell(waits))
        first = ((label(rate or RATES[0]), shown), steps, _step_time(side), _known(side, "steps"), data)
        rows = (*first, *(_known(side, name) for name in _SINGLE_RUN_MEASURES))
        columns = (Column("Measure"), Column(side.label, number=True, tone=side.tone))
        cells = tuple((Cell(row[0]), row[1]) for row in rows if row is not None)
        yield Table("Over the measured steps", columns, cells)
    else:
        spread = len(report_input.sides) == 2  # more columns have no room for it
        yield compare_table(report_input, key_measures(report_input), "Before and after", spread=spread)
    yield from compare_phases(report_input.sides)


def _qualifications(report_input: ReportInput) -> Iterator[Block]:
    """Tell what qualifies the verdict: programs that ended early, sides that do not compare, a noisy machine."""
    comparison, analysis = report_input.comparison, report_input.analysis
    if comparison is not None:
        yield from _comparison_warnings(comparison)
        # whether the sides compute the same, as far as the programs state results; differences are warnings above
        if same := same_results(comparison.results):
            yield Callout(f"{same}, in all runs.", "info", "Same results", judged="good")
        reported = {item.name for item in comparison.mismatches if item.result is not None}
        other = [
            result for result in comparison.results if result.difference is not None and result.name not in reported
        ]
        if different := different_results(other):
            yield Callout(f"{different}.", "info", "Results differ too", judged="bad")
        if uncompared := uncompared_results(comparison.results):
            yield Callout(f"{uncompared}: these results were not compared.", "info", "Results not compared")
    elif analysis is not None and (early := ended_early(analysis)):
        yield Callout(early, "warning", "Ended early")
    if load := noisy_machine(report_input):
        yield Callout(load, "warning", "Noisy machine")


@section("verdict", "The verdict in full", 10, "evidence", brief=_qualifications)
def verdict(report_input: ReportInput) -> Iterator[Block]:
    """Show all sentences of the verdict, and what qualifies it."""
    analysis = report_input.analysis  # the sentences of a comparison are those of its tables
    sentences = (analysis.headline or analysis.verdict, *analysis.details) if analysis is not None else ()
    if any(sentences) and not report_input.failed_before_first_step:
        yield Items(tuple(filter(None, sentences)))
    yield from _qualifications(report_input)


def _comparison_warnings(comparison: Comparison) -> Iterator[Callout]:
    if comparison.planned is not None:
        done = f"{comparison.pairs} of {comparison.planned} rounds"
        text = f"The recording was stopped after {done}, before the breakdown passes were complete."
        yield Callout(text, "warning", "Stopped early")
    reasons = mismatches(comparison.mismatches) or NO_REASON
    if not comparison.comparable and not comparison.forced:
        yield Callout(f"These sides are not comparable: {reasons}.", "warning", "Not comparable")
        return
    if not comparison.comparable:
        forced = "They were compared because of --anyway; no ratio here is a gain."
        text = f"These sides are not comparable: {reasons}. {forced}"
        yield Callout(text, "warning", "Forced")
    ended = [
        f"{side.label} {status}" for side in comparison.sides for run in side.runs if (status := exit_status(run.info))
    ]
    if ended:
        text = f"{'; '.join(dict.fromkeys(ended))}. Ratios are of the parts before that."
        yield Callout(text, "warning", "Ended early")


def _ratio_cell(ratio: Ratio | None) -> Cell:
    if ratio is not None and ratio.is_doubted:
        return replace(bound_cell(ratio), note=describe(ratio.reason))
    if ratio is None or ratio.value is None:
        return missing_cell(ratio.reason if ratio else "no pair of runs was measured")
    detail = describe(ratio.reason) or f"{ratio.n} pair{'s' * (ratio.n != 1)}"
    if ratio.low is not None and ratio.high is not None:
        detail = f"95% interval {factor(ratio.low)[0]} to {factor(ratio.high)[0]}, {ratio.n} pairs"
    if not ratio.different and not ratio.reason:
        detail = f"no difference seen: {detail}"
    return Cell(*factor(ratio.value), sort=ratio.value, note=detail)


_Row = tuple[str, Cell]


def _step_time(side: ReportSide) -> _Row | None:
    """Return the mean time of a step, which the rate is made of, and the spread, in which slow steps show."""
    mean, middle, late = (side.measure(name) for name in ("step_time", "step_time_p50", "step_time_p95"))
    if mean.value is None or middle.value is None or late.value is None or mean.n == 1:
        return _known(side, "step_time")
    note = f"median {phrase(middle.value, 's')}; 95% below {phrase(late.value, 's')}"
    return f"{label('step_time')}, mean", replace(measure_cell(mean), note=note)


def _known(side: ReportSide, name: str) -> _Row | None:
    measure = side.measure(name)
    return None if measure.value is None else (label(name), measure_cell(measure, share=is_share(name)))


# ---------------------------------------------------------------- findings


_NOTHING = "No rule found a large cause. The program may still compute more than it needs."
_BRIEF = 2
"""Findings that a terminal shows by default."""
_NOTE = (
    "The last column shows how many times as fast a step would be without the cause. It is a prediction, unless it "
    "says measured. Time that no rule explains has no such figure. A finding about the same time as another one comes "
    "last. Costs and shares leave out waits for a core, and recording."
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


def _in_full(finding: Finding, cures: Iterable[Any]) -> Group:
    """Tell what to do about a finding and what that can give, beside the figures and lines that show it."""
    text = finding_text(finding)
    gains = (*(f"Gain of {prediction}" for prediction in prediction_texts(finding)), left_out_text(finding))
    gains = tuple(filter(None, gains))
    examples = (
        f"Example: the bundled trainer's fix {fix.name}, in {words.listed(fix.files)}."
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
    """Yield the lines of a finding, each with its text where that was recorded."""
    places = [words.at(site).removeprefix(" at ") for site in finding.sites]
    texts = [site.source for site in finding.sites]
    if any(texts):
        yield from (f"{place}: {source}" if source else place for place, source in zip(places, texts, strict=True))
    elif places:
        yield f"{'Line' if len(places) == 1 else 'Lines'}: {words.listed(places)}."


def _brief_findings(report_input: ReportInput) -> Iterator[Block]:
    analysis = report_input.analysis
    if analysis is not None:  # the verdict has the figures of those that matter
        first = [each for each in analysis.findings if each.has_cure][:_BRIEF]
        for finding in (*first, *(each for each in of_whole_run(analysis.findings) if each not in first)):
            # the cure of a finding, and the figures that show the cause
            text = finding_text(finding)
            if text.code:
                yield Items((text.fix,), text.title, text.code)
                yield Items(text.evidence)
            else:
                yield Items((text.fix, *text.evidence), text.title)
    else:
        yield from _changes(report_input)


_CHANGES_NOTE = (
    "From the breakdown passes. Two causes are the same if one rule names both. A cause is new or cured only if the "
    "steps of the other side are short enough to show such a cost."
)
_JUDGED = {FindingState.NEW: "bad", FindingState.GREW: "bad", FindingState.SHRANK: "good", FindingState.CURED: "good"}


def _changes(report_input: ReportInput) -> Iterator[Table]:
    """Tell what became of the findings about the first side on each other one, where both have a breakdown pass."""
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
    """Tell whether nearly all of a step was recorded, so that a cause would have been found."""
    if analysis.value("device_utilization") is not None and not analysis.idle:
        return False
    unknown = analysis.unattributed_share
    is_measured = bool(analysis.idle) or any(measure.value for measure in analysis.breakdown.values())
    return is_measured and unknown is not None and unknown < NAMED


@section("findings", "What makes it slow", 12, "evidence", brief=_brief_findings)
def findings(report_input: ReportInput) -> Iterator[Block]:
    """Show the findings of a single run, and the rules that cannot judge it; of a comparison what became of them."""
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


PLUGINS = (verdict, numbers, findings)
