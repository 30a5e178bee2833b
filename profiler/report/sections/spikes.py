"""Steps that take much longer than the others, and the lines at which their extra time lies."""

from __future__ import annotations

from profiler.analyse.model import Spikes
from profiler.core.units import nth
from profiler.report.blocks import Block, Cell, Column, Section, Table
from profiler.report.build import SectionPlugin
from profiler.report.quantities import factor, share_cell, site_cell
from profiler.report.subject import Subject, View, views

TITLE = "Steps that take longer"
_STEPS = (
    Column("Run"),
    Column("Long steps", number=True),
    Column("How often"),
    Column("As long as the others", number=True),
    Column("Extra time, of all", number=True),
)
_LINES = (Column("Line"), Column("Of the extra time", number=True), Column("Of all time", number=True))


def build(subject: Subject) -> Section | None:
    """Nothing where no step takes much longer than the others."""
    sides = [(view, found) for view in views(subject) if (found := view.any_detail.spikes)]
    if not sides:
        return None
    rows = tuple(_row(view, found) for view, found in sides)
    caption = "Steps of more than twice the median, and what they take beyond it"
    notes = " ".join(f"{view.label}: {_why_no_line(found)}." for view, found in sides if not found.lines)
    blocks: list[Block] = [Table(caption, _STEPS, rows, notes)]
    blocks += [_lines(view, found) for view, found in sides if found.lines]
    return Section("spikes", TITLE, tuple(blocks))


def _row(view: View, spikes: Spikes) -> tuple[Cell, ...]:
    often = f"every {nth(spikes.every)}" if spikes.every else "without a rule"
    return (
        Cell(view.label),
        Cell(f"{spikes.count:,} of {spikes.steps:,}", sort=spikes.count),
        Cell(often, sort=spikes.every),
        Cell(*factor(spikes.times), sort=spikes.times),
        share_cell(spikes.share),
    )


def _why_no_line(spikes: Spikes) -> str:
    if not spikes.enough:
        return f"{spikes.samples or 'no'} stack samples in long steps: too few to say at which lines"
    return "no line stands out in the long steps: the machine, or more of the same work"


def _lines(view: View, spikes: Spikes) -> Table:
    rows = tuple(
        (site_cell(line.site), share_cell(line.share), share_cell(line.share * spikes.share)) for line in spikes.lines
    )
    note = f"From {spikes.samples:,} stack samples in long steps, held against those in the others."
    return Table(f"{view.label}: where the extra time lies", _LINES, rows, note)


PLUGIN = SectionPlugin("spikes", TITLE, 33, build)
