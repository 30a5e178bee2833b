"""The parts of a step and the lines of two or more sides beside each other, in seconds: what fell, and what is left."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from pathlib import PurePath

from profiler.analyse.model import LineCost
from profiler.core.metrics import label
from profiler.report.blocks import NOTHING, Cell, Column, Table
from profiler.report.quantities import percent, seconds_cell, share_cell, site_cell
from profiler.report.subject import View, of_pass

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
    return (Table(f"The parts of a step{_of_pass(sides)}", columns, rows),)


def lines_table(sides: tuple[View, ...]) -> tuple[Table, ...]:
    """The lines with most time of each side: two sides beside each other, more of them below each other.

    Lines are not matched: an edited program has other numbers for the same lines.
    """
    if len(sides) < 2 or not all(view.any_detail.phases and view.any_detail.lines for view in sides):
        return ()
    caption = f"The lines with most time{_of_pass(sides)}"
    if len(sides) == 2:
        return (_two(sides, caption),)
    columns = (Column("Side"), Column("Line"), Column("Time a step", number=True), Column("Share", number=True))
    rows = tuple(
        (Cell(view.label), site_cell(line.site), seconds_cell(line.seconds_per_step), share_cell(line.share))
        for view in sides
        for line in view.any_detail.lines[:_LINES]
    )
    return (Table(caption, columns, rows),)


def _two(sides: tuple[View, ...], caption: str) -> Table:
    """A row a rank: the line of each side that takes most, that takes second most, ..."""
    columns = [
        Column(f"{view.label}: {what}", number=bool(place), tone=view.tone if place else "")
        for view in sides
        for place, what in enumerate(("line", "a step"))
    ]
    ranks = zip_longest(*(view.any_detail.lines[:_LINES] for view in sides))
    rows = tuple(tuple(cell for line in lines for cell in _line_and_time(line)) for lines in ranks)
    return Table(
        caption, tuple(columns), rows, "Each side in the order of its own times, with their shares of its step."
    )


def _line_and_time(line: LineCost | None) -> tuple[Cell, Cell]:
    if line is None:
        return Cell(NOTHING), Cell(NOTHING)
    time = seconds_cell(line.seconds_per_step)
    place = f"{PurePath(line.site.file).name}:{line.site.line}"  # two of them in half a page: without folders
    return replace(site_cell(line.site), text=place), replace(time, note=percent(line.share))


def _of_pass(sides: tuple[View, ...]) -> str:
    said = {of_pass(view) for view in sides}
    return said.pop() if len(said) == 1 else ""


def _cell(value: float) -> Cell:
    return seconds_cell(value) if value else Cell("none", sort=0.0)
