"""Throughput of each side with its range, the ratio with its interval, and the launch-overhead floor."""

from __future__ import annotations

from profiler.core.metrics import label
from profiler.report.blocks import Block, Cell, Group, Interval, IntervalChart, NotMeasured, Section, Table, Text
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput, ReportSide, report_side
from profiler.report.table import Field, make_table, measure_cell, phrase, ratio_cell, ratio_text
from profiler.report.text import describe

TITLE = "Throughput"
FLOOR_MEANING = "the same calls with empty kernels, the least this pattern can cost"
_LOG_SPAN = 4.0
"""Largest over smallest value from which a logarithmic axis reads better than a linear one."""


def build(report_input: ReportInput) -> Section:
    """Table of sides and floor, then every run and every pair as a dot."""
    comparison, sides, rate = report_input.comparison, report_input.sides, report_input.rate
    if comparison is None:
        return Section("throughput", TITLE, (_single_run(sides[0]),))
    floor = report_side(comparison.floor, "floor") if comparison.floor is not None else None
    rows = (*sides, *((floor,) if floor else ()))
    blocks: list[Block] = [_table(report_input, rows)]
    if floor is not None:
        blocks.extend(_floor_text(sides, floor))
    plots = (("Every run", _runs_plot(report_input, rows)), ("Every pair", _pairs_plot(report_input)))
    columns = tuple((title, (plot,)) for title, plot in plots if plot)
    if columns:
        blocks.append(Group(columns))
    elif len(sides) > 1:
        reason = describe(sides[0].measure(rate).reason) or "no run is kept"
        blocks.append(NotMeasured("throughput of single runs", reason))
    return Section("throughput", TITLE, tuple(blocks))


def _single_run(side: ReportSide) -> Table:
    """Time of a step, how much it varies, and tokens where steps report them."""
    names: tuple[str, ...] = ("tokens_per_s", "steps_per_s", "step_time", "step_time_p50", "step_time_p95", "steps")
    if side.measure("step_time").n == 1:  # a single step has no spread
        names = tuple(name for name in names if not name.startswith("step_time_p"))
    fields = (
        Field[str]("Measure", lambda name: Cell(label(name))),
        Field[str](side.label, lambda name: measure_cell(side.measure(name), spread=True), number=True),
    )
    return make_table("Over the measured steps", fields, [name for name in names if side.has(name)] or ["step_time"])


def _table(report_input: ReportInput, rows: tuple[ReportSide, ...]) -> Table:
    baseline, rate = report_input.sides[0], report_input.rate
    name = report_input.rate_phrase(rate).capitalize()

    def gain(side: ReportSide) -> Cell:
        if side.label == baseline.label:
            return Cell("baseline", sort=1.0)
        return ratio_cell(report_input.ratio(side.label, rate), baseline.measures.get(rate), side.measure(rate))

    fields = (
        Field[ReportSide]("Side", lambda side: Cell(side.label, note=FLOOR_MEANING if side.tone == "floor" else "")),
        Field[ReportSide](name, lambda side: measure_cell(side.measure(rate), spread=True, bare=True), number=True),
        Field[ReportSide](
            "Time of a step", lambda side: measure_cell(side.measure("step_time"), spread=True), number=True
        ),
        Field[ReportSide]("Steps per run", lambda side: measure_cell(side.measure("steps")), number=True),
        Field[ReportSide]("Ratio", gain, number=True),
    )
    runs = len(baseline.runs)
    return make_table(f"{name}, median and range over {runs} runs" if runs > 1 else name, fields, rows)


def _floor_text(sides: tuple[ReportSide, ...], floor: ReportSide) -> tuple[Text, ...]:
    limit, baseline = floor.measure("tokens_per_s"), sides[0].measure("tokens_per_s").value
    if not limit.value or not baseline:
        return ()
    text = (
        f"With kernels that do nothing, the calls of {sides[0].label} still allow only "
        f"{phrase(limit.value, limit.unit)}: {ratio_text(limit.value / baseline)} its throughput is the most that "
        "faster kernels could give it."
    )
    best = sides[-1].measure("tokens_per_s").value
    if len(sides) > 1 and best and best > limit.value:
        ratio = ratio_text(best / limit.value)
        text += f" {sides[-1].label} passes that floor {ratio} because it makes fewer calls."
    return (Text(text),)


def _values(side: ReportSide, rate: str) -> tuple[float, ...]:
    measures = (run.measures.get(rate) for run in side.runs)
    return tuple(measure.value for measure in measures if measure is not None and measure.value is not None)


def _is_wide(rows: list[Interval]) -> bool:
    """Whether the dots span so much that a logarithmic axis reads better."""
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
    title = f"{report_input.rate_phrase(rate).capitalize()}, with median and range"
    note = "Logarithmic axis." if log else ""
    return IntervalChart(title, report_input.rate_unit(rate), tuple(rows), log=log, note=note)


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


PLUGIN = SectionPlugin("throughput", TITLE, 20, build)
