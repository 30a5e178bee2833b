"""Time outside of the measured steps: before the first, in warm-up, after the last, with the lines that took most."""

from __future__ import annotations

from profiler.analyse.model import LineCost, UnmeasuredPeriod
from profiler.report.blocks import Cell, Column, Section, Table
from profiler.report.build import SectionPlugin
from profiler.report.quantities import phrase, seconds_cell, site_cell
from profiler.report.sections.lines import within
from profiler.report.subject import Subject, View, views
from profiler.report.text import PERIODS

TITLE = "Before the first step and after the last"
_COLUMNS = (Column("Stretch"), Column("Time", number=True), Column("Line"), Column("In"), Column("Of it", number=True))
_MOST_LINES = 3


def build(subject: Subject) -> Section | None:
    """Nothing for a program that marks its own steps, and where no step was measured."""
    tables = tuple(_table(view) for view in views(subject) if view.any_detail.startup_teardown)
    return Section("outside", TITLE, tables) if tables else None


def _table(view: View) -> Table:
    rows = [row for stretch in view.any_detail.startup_teardown for row in _rows(stretch)]
    return Table(f"{view.label}: time outside of the measured steps", _COLUMNS, tuple(rows))


def _rows(stretch: UnmeasuredPeriod) -> list[tuple[Cell, ...]]:
    """The first row of a stretch names it."""
    head = Cell(PERIODS[stretch.period]), seconds_cell(stretch.seconds)
    if not stretch.lines:
        why = "no stack sample in it"
        return [(*head, *(Cell("", missing=why) for _ in range(3)))]
    again = Cell("", title=PERIODS[stretch.period]), Cell("", sort=stretch.seconds)
    return [(*(again if number else head), *_line(line)) for number, line in enumerate(stretch.lines[:_MOST_LINES])]


def _line(line: LineCost) -> tuple[Cell, ...]:
    return (
        site_cell(line.site),
        within(line),
        Cell(phrase(line.seconds_per_step, "s"), sort=line.seconds_per_step),
    )


PLUGIN = SectionPlugin("outside", TITLE, 34, build)
