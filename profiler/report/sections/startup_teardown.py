"""Time outside of the measured steps: before the first, in warm-up, after the last, with the lines that took most."""

from __future__ import annotations

from collections.abc import Iterator

from profiler.analyse.model import LineCost, UnmeasuredPeriod
from profiler.report.blocks import Cell, Section
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput
from profiler.report.sections.lines import callee_cell
from profiler.report.table import Field, make_table, missing_cell, phrase, seconds_cell, site_cell
from profiler.report.text import PERIODS

TITLE = "Before the first step and after the last"
_MAX_LINES = 3
_Row = tuple[UnmeasuredPeriod, LineCost | None, bool]
"""A period, one of its lines, and whether it is its first row, which names it."""
_NO_LINE = "no stack sample in it"


def _period(row: _Row) -> Cell:
    name = PERIODS[row[0].period]
    return Cell(name) if row[2] else Cell("", title=name)


def _line_seconds(line: LineCost) -> Cell:
    return Cell(phrase(line.seconds_per_step, "s"), sort=line.seconds_per_step)


_FIELDS = (
    Field[_Row]("Period", _period),
    Field[_Row](
        "Time", lambda row: seconds_cell(row[0].seconds) if row[2] else Cell("", sort=row[0].seconds), number=True
    ),
    Field[_Row]("Line", lambda row: site_cell(row[1].site) if row[1] else missing_cell(_NO_LINE)),
    Field[_Row]("In", lambda row: callee_cell(row[1]) if row[1] else missing_cell(_NO_LINE)),
    Field[_Row]("Time there", lambda row: _line_seconds(row[1]) if row[1] else missing_cell(_NO_LINE), number=True),
)


def build(report_input: ReportInput) -> Section | None:
    """Nothing for a program that marks its own steps, and where no step was measured."""
    tables = tuple(
        make_table(f"{side.label}: time outside of the measured steps", _FIELDS, _rows(side.detailed.startup_teardown))
        for side in report_input.sides
        if side.detailed.startup_teardown
    )
    return Section("outside", TITLE, tables) if tables else None


def _rows(periods: tuple[UnmeasuredPeriod, ...]) -> Iterator[_Row]:
    for period in periods:
        for number, line in enumerate(period.lines[:_MAX_LINES] or (None,)):
            yield period, line, number == 0


PLUGIN = SectionPlugin("outside", TITLE, 34, build)
