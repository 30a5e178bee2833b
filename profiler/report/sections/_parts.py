"""The parts of a step and the lines of two or more sides beside each other, in seconds: what fell, and what is left."""

from __future__ import annotations

from profiler.report.blocks import Cell, Column, Table
from profiler.report.names import label
from profiler.report.quantities import seconds_cell, share_cell, site_cell
from profiler.report.subject import View

_LINES = 4


def parts_table(sides: tuple[View, ...]) -> tuple[Table, ...]:
    """Nothing unless the parts of every side are known."""
    known = [{part.name: part.seconds_per_step for part in view.any_detail.phases} for view in sides]
    if len(sides) < 2 or not all(known):
        return ()
    every = dict.fromkeys(name for one in known for name in one)
    names = [name for name in every if any(one.get(name) for one in known)]
    columns = (Column("Part"), *(Column(view.label, number=True, tone=view.tone) for view in sides))
    rows = tuple((Cell(label(name)), *(_cell(one.get(name, 0.0)) for one in known)) for name in names)
    return (Table("The parts of a step, in the breakdown pass", columns, rows),)


def lines_table(sides: tuple[View, ...]) -> tuple[Table, ...]:
    """The lines with most time of each side; an edited program has other numbers for the same lines."""
    if len(sides) < 2 or not all(view.any_detail.phases and view.any_detail.lines for view in sides):
        return ()
    columns = (Column("Side"), Column("Line"), Column("Time a step", number=True), Column("Share", number=True))
    rows = tuple(
        (Cell(view.label), site_cell(line.site), seconds_cell(line.seconds_per_step), share_cell(line.share))
        for view in sides
        for line in view.any_detail.lines[:_LINES]
    )
    return (Table("The lines with most time, before and after", columns, rows),)


def _cell(value: float) -> Cell:
    return seconds_cell(value) if value else Cell("none", sort=0.0)
