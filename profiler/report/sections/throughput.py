"""Shows how fast each side is, which steps take much longer, and what lies outside of the measured steps."""

from __future__ import annotations

from collections.abc import Iterator

from profiler.analyse.model.host import LineCost, SpikeLine, Spikes, StageTime, UnmeasuredPeriod
from profiler.core.units import nth
from profiler.report.blocks import NOTHING, Block, Cell, Group, Interval, IntervalChart, NotMeasured, Table, Text
from profiler.report.build import section
from profiler.report.finding_text import NO_GAIN
from profiler.report.model import ReportInput, ReportSide
from profiler.report.notices import describe
from profiler.report.sections.lines import callee_cell
from profiler.report.table import (
    Field,
    factor,
    make_table,
    missing_cell,
    phrase,
    ratio_text,
    seconds_cell,
    share_cell,
    site_cell,
)
from profiler.report.text import PERIODS, plural

# ---------------------------------------------------------------- throughput

_LOG_SPAN = 4.0
"""Largest over smallest value from which a logarithmic axis reads better than a linear one."""


@section("throughput", "Throughput", 36, "time")
def throughput(report_input: ReportInput) -> Iterator[Block]:
    """Show every run and pair behind the rates of the sides, and the launch-overhead floor."""
    comparison, sides = report_input.comparison, report_input.sides
    if comparison is None:
        return
    floor = ReportSide.from_side(comparison.floor, "floor") if comparison.floor is not None else None
    rows = (*sides, *((floor,) if floor else ()))
    if floor is not None:
        yield from _floor_text(sides, floor)
    plots = (("Every run", _runs_plot(report_input, rows)), ("Every pair", _pairs_plot(report_input)))
    if columns := tuple((title, (plot,)) for title, plot in plots if plot):
        yield Group(columns)
    elif len(sides) > 1:
        reason = describe(sides[0].measure(report_input.rate).reason) or "no run is kept"
        yield NotMeasured("throughput of single runs", reason)


def _floor_text(sides: tuple[ReportSide, ...], floor: ReportSide) -> Iterator[Text]:
    limit, baseline = floor.measure("tokens_per_s"), sides[0].measure("tokens_per_s").value
    if not limit.value or not baseline:
        return
    calls = f"With kernels that do nothing, {sides[0].label} still reaches only {phrase(limit.value, limit.unit)}"
    if limit.value / baseline <= NO_GAIN:
        text = f"{calls}: its calls take the time, so faster kernels would gain nothing that can be measured."
    else:
        gain = ratio_text(limit.value / baseline)
        text = f"{calls}: {gain} its throughput is the most that faster kernels could give it."
    best = sides[-1].measure("tokens_per_s").value
    if len(sides) > 1 and best and best > limit.value:
        ratio = ratio_text(best / limit.value)
        text += f" {sides[-1].label} passes that floor {ratio} because it makes fewer calls."
    yield Text(text)


def _values(side: ReportSide, rate: str) -> tuple[float, ...]:
    measures = (run.measures.get(rate) for run in side.runs)
    return tuple(measure.value for measure in measures if measure is not None and measure.value is not None)


def _is_wide(rows: list[Interval]) -> bool:
    """Tell whether the dots span so much that a logarithmic axis reads better."""
    dots = [dot for row in rows for dot in row.dots]
    return min(dots) > 0 and max(dots) / min(dots) > _LOG_SPAN


def _runs_plot(report_input: ReportInput, sides: tuple[ReportSide, ...]) -> IntervalChart | None:
    rate, rows = report_input.rate, []
    for side in sides:
        measure, dots = side.measure(rate), _values(side, rate)
        if measure.value is not None and len(dots) > 1:
            text = phrase(measure.value, measure.unit)
            rows.append(Interval(side.label, side.tone, dots, measure.value, measure.low, measure.high, text))
    if not rows:
        return None
    log = _is_wide(rows)
    title = f"{report_input.rate_phrase(rate).capitalize()}, with mean and range"
    return IntervalChart(f"{title}{', logarithmic' * log}", report_input.rate_unit(rate), tuple(rows), log=log)


def _pairs_plot(report_input: ReportInput) -> IntervalChart | None:
    baseline, rate = report_input.sides[0], report_input.rate
    rows, before = [], _values(baseline, rate)
    for side in report_input.sides[1:]:
        ratio = report_input.ratio(side.label, rate)
        pairs = tuple(last / first for first, last in zip(before, _values(side, rate), strict=False) if first)
        if ratio is not None and ratio.value is not None and pairs:
            text = ratio_text(ratio.value)
            rows.append(Interval(side.label, side.tone, pairs, ratio.value, ratio.low, ratio.high, text))
    if not rows:
        return None
    title = f"{report_input.rate_phrase(rate).capitalize()} over {baseline.label}, with mean and 95% interval"
    return IntervalChart(title, f"ratio over {baseline.label}", tuple(rows), log=_is_wide(rows), reference=1.0)


# ---------------------------------------------------------------- long steps

_SideSpikes = tuple[ReportSide, Spikes]


_SPIKE_FIELDS = (
    Field[_SideSpikes]("Run", lambda row: Cell(row[0].label)),
    Field[_SideSpikes](
        "Long steps", lambda row: Cell(f"{row[1].count:,} of {row[1].steps:,}", sort=row[1].count), number=True
    ),
    Field[_SideSpikes](
        "How often",
        lambda row: Cell(f"every {nth(row[1].every)}" if row[1].every else "irregularly", sort=row[1].every),
    ),
    Field[_SideSpikes](
        "Times as long as others", lambda row: Cell(*factor(row[1].times), sort=row[1].times), number=True
    ),
    Field[_SideSpikes]("Extra share of all time", lambda row: share_cell(row[1].share), number=True),
)


@section("spikes", "Long steps", 33, "time")
def long_steps(report_input: ReportInput) -> Iterator[Block]:
    """Show steps that take much longer than the others, and the lines in which their extra time is."""
    rows = [(side, spikes) for side in report_input.sides if (spikes := side.detailed.spikes)]
    if rows:
        caption = "Steps of more than twice the median, or 1.25 times with a checkpoint"
        fields = _SPIKE_FIELDS if len(report_input.sides) > 1 else _SPIKE_FIELDS[1:]
        notes = [f"{side.label}: {_why_no_line(spikes)}." for side, spikes in rows if not spikes.lines]
        yield make_table(caption, fields, rows, " ".join(("The extra time is the time beyond the median.", *notes)))
    for side, spikes in rows:
        if spikes.lines:
            yield _spike_lines(side, spikes)


def _why_no_line(spikes: Spikes) -> str:
    if not spikes.enough:
        # without their number: the first screen counts those that have a line of the program's own
        return f"{'too few' if spikes.samples else 'no'} stack samples in long steps to tell which lines"
    return "no line stands out in the long steps: the machine was slow, or these steps had more of the same work"


def _spike_lines(side: ReportSide, spikes: Spikes) -> Table:
    fields = (
        Field[SpikeLine]("Line", lambda line: site_cell(line.site)),
        Field[SpikeLine]("Calls", lambda line: Cell(line.calls, code=True) if line.calls else Cell(NOTHING)),
        Field[SpikeLine]("Share of the extra time", lambda line: share_cell(line.share), number=True),
        Field[SpikeLine]("Share of all time", lambda line: share_cell(line.share * spikes.share), number=True),
    )
    note = f"From {plural(spikes.samples, 'stack sample')} in long steps, compared with those in the others."
    return make_table(f"{side.label}: lines with the extra time", fields, spikes.lines, note)


# ---------------------------------------------------------------- outside of the measured steps

_MAX_LINES = 3
_PeriodLine = tuple[UnmeasuredPeriod, LineCost | None, bool]
"""A period, one of its lines, and whether it is its first row, which names it."""
_NO_LINE = "no stack sample in it"


def _period(row: _PeriodLine) -> Cell:
    name = PERIODS[row[0].period]
    return Cell(name) if row[2] else Cell("", title=name)


def _line_time(row: _PeriodLine) -> Cell:
    if row[1] is None:
        return missing_cell(_NO_LINE)
    return Cell(phrase(row[1].seconds_per_step, "s"), sort=row[1].seconds_per_step)


_PERIOD_FIELDS = (
    Field[_PeriodLine]("Period", _period),
    Field[_PeriodLine](
        "Time", lambda row: seconds_cell(row[0].seconds) if row[2] else Cell("", sort=row[0].seconds), number=True
    ),
    Field[_PeriodLine]("Line", lambda row: site_cell(row[1].site if row[1] else None, _NO_LINE)),
    Field[_PeriodLine]("In", lambda row: callee_cell(row[1]) if row[1] else missing_cell(_NO_LINE)),
    Field[_PeriodLine]("Time there", _line_time, number=True),
)


_STAGE_FIELDS = (
    Field[StageTime]("Stage", lambda row: Cell(row.stage.value)),
    Field[StageTime]("Time", lambda row: seconds_cell(row.seconds), number=True),
    Field[StageTime](
        "Share of the run",
        lambda row: share_cell(row.share, (row.low, row.high)),
        number=True,
    ),
)


@section("outside", "Before the first step and after the last", 34, "time")
def startup_teardown(report_input: ReportInput) -> Iterator[Block]:
    """The whole run by stage, then start, warm-up, pauses and end with the lines that took most; nothing for a program
    that marks its own steps."""
    for side in report_input.sides:
        if side.detailed.stages:
            yield make_table(f"{side.label}: the whole run by stage", _STAGE_FIELDS, side.detailed.stages)
        if periods := side.detailed.startup_teardown:
            rows = [
                (period, line, number == 0)
                for period in periods
                for number, line in enumerate(period.lines[:_MAX_LINES] or (None,))
            ]
            yield make_table(f"{side.label}: time outside of the measured steps", _PERIOD_FIELDS, rows)


PLUGINS = (throughput, long_steps, startup_teardown)
