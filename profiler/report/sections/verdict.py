"""Shows the verdict in full, with the numbers behind it: how certain it is, and what changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from profiler.analyse.model import Comparison, Ratio
from profiler.core.metrics import RATES, is_share, label
from profiler.report.blocks import Block, Callout, Cell, Column, Items, Table, Text
from profiler.report.build import section
from profiler.report.category_text import phase_label
from profiler.report.model import (
    HOST_MEASURES,
    ReportInput,
    ReportSide,
    ended_early,
    exit_status,
    key_measures,
    noisy_machine,
)
from profiler.report.sections.lines import compare_lines, compare_phases
from profiler.report.table import (
    bound_cell,
    compare_table,
    factor,
    measure_cell,
    missing_cell,
    phrase,
    share_cell,
)
from profiler.report.text import (
    NO_REASON,
    describe,
    different_results,
    mismatches,
    same_results,
    uncompared_results,
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
    """The key measures of a run; of a comparison what the sides measure, and the ratios."""
    if not report_input.without_steps:
        yield from _tables(report_input)


def _tables(report_input: ReportInput) -> Iterator[Table]:
    if report_input.comparison is None:
        yield _key_table(report_input.sides[0])
    else:
        spread = len(report_input.sides) == 2  # more columns have no room for it
        yield compare_table(report_input, key_measures(report_input), "Before and after", spread=spread)
    yield from compare_phases(report_input.sides)


def _sentences(report_input: ReportInput) -> Iterator[Block]:
    analysis = report_input.analysis  # the sentences of a comparison are those of its tables
    sentences = (analysis.headline or analysis.verdict, *analysis.details) if analysis is not None else ()
    if any(sentences) and not report_input.failed_before_first_step:
        yield Items(tuple(filter(None, sentences)))


def _qualifications(report_input: ReportInput) -> Iterator[Block]:
    """What qualifies the verdict: programs that ended early, sides that do not compare, a noisy machine."""
    comparison, analysis = report_input.comparison, report_input.analysis
    if comparison is not None:
        yield from _comparison_warnings(comparison)
        yield from _result_callouts(comparison)
    elif analysis is not None and (early := ended_early(analysis)):
        yield Callout(early, "warning", "Ended early")
    if load := noisy_machine(report_input):
        yield Callout(load, "warning", "Noisy machine")


@section("verdict", "The verdict in full", 10, "evidence", brief=_qualifications)
def verdict(report_input: ReportInput) -> Iterator[Block]:
    """All sentences of the verdict, and what qualifies it."""
    yield from _sentences(report_input)
    yield from _qualifications(report_input)


def _comparison_warnings(comparison: Comparison) -> Iterator[Callout]:
    if comparison.planned is not None:
        done = f"{comparison.pairs} of {comparison.planned} rounds"
        text = f"The recording was stopped when {done} were complete, before the breakdown pass of all sides was."
        yield Callout(text, "warning", "Stopped early")
    reasons = mismatches(comparison.mismatches) or NO_REASON
    if not comparison.comparable and not comparison.forced:
        yield Callout(f"These sides are not comparable: {reasons}.", "warning", "Not comparable")
        return
    if not comparison.comparable:
        text = f"These sides are not comparable: {reasons}. Compared all the same (--anyway); no ratio here is a gain."
        yield Callout(text, "warning", "Forced")
    ended = [
        f"{side.label} {status}" for side in comparison.sides for run in side.runs if (status := exit_status(run.info))
    ]
    if ended:
        text = f"{'; '.join(dict.fromkeys(ended))}. Ratios are of the parts before that."
        yield Callout(text, "warning", "Ended early")


def _result_callouts(comparison: Comparison) -> Iterator[Callout]:
    """Whether the sides compute the same, as far as the programs state results; differences are warnings above."""
    if same := same_results(comparison.results):
        yield Callout(f"{same}, in all runs.", "info", "Same results", judged="good")
    reported = {item.name for item in comparison.mismatches if item.result is not None}
    other = [result for result in comparison.results if result.difference is not None and result.name not in reported]
    if different := different_results(other):
        yield Callout(f"{different}.", "info", "Results differ too", judged="bad")
    if uncompared := uncompared_results(comparison.results):
        yield Callout(f"{uncompared}: these results were not compared.", "info", "Results not compared")


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


def _key_table(side: ReportSide) -> Table:
    """Key measures of one run: rate, time of a step with its spread, data loading, and what else was measured."""
    measured = (_known(side, name) for name in _SINGLE_RUN_MEASURES)
    steps = None if side.measure("tokens_per_s").value is None else _known(side, "steps_per_s")
    rows = (_rate(side), steps, _step_time(side), _known(side, "steps"), _waiting_for_data(side), *measured)
    columns = (Column("Measure"), Column(side.label, number=True, tone=side.tone))
    return Table("Over the measured steps", columns, tuple((Cell(row[0]), row[1]) for row in rows if row is not None))


def _rate(side: ReportSide) -> _Row:
    name = next((name for name in RATES if side.has(name)), "")
    if name:
        return label(name), measure_cell(side.measure(name))
    return label(RATES[0]), measure_cell(replace(side.measure(RATES[0]), value=None))


def _step_time(side: ReportSide) -> _Row | None:
    """The mean time of a step, which the rate is made of, and the spread, in which slow steps show."""
    mean, middle, late = (side.measure(name) for name in ("step_time", "step_time_p50", "step_time_p95"))
    if mean.value is None or middle.value is None or late.value is None or mean.n == 1:
        return _known(side, "step_time")
    note = f"median {phrase(middle.value, 's')}; 95% below {phrase(late.value, 's')}"
    return f"{label('step_time')}, mean", replace(measure_cell(mean), note=note)


def _waiting_for_data(side: ReportSide) -> _Row | None:
    """Share of a step in which the training thread waits for data or makes it."""
    share = next((phase.share for phase in side.detailed.phases if phase.name == "data"), None)
    return None if share is None else (phase_label("data").capitalize(), share_cell(share))


def _known(side: ReportSide, name: str) -> _Row | None:
    measure = side.measure(name)
    return None if measure.value is None else (label(name), measure_cell(measure, share=is_share(name)))


PLUGINS = (verdict, numbers)
