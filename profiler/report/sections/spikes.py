"""Steps that take much longer than the others, and the lines in which their extra time is."""

from __future__ import annotations

from profiler.analyse.model import SpikeLine, Spikes
from profiler.core.units import nth
from profiler.report.blocks import Block, Cell, Section, Table
from profiler.report.build import SectionPlugin
from profiler.report.model import ReportInput, ReportSide
from profiler.report.table import Field, factor, make_table, share_cell, site_cell

TITLE = "Long steps"
_Row = tuple[ReportSide, Spikes]


def _frequency(row: _Row) -> Cell:
    every = row[1].every
    return Cell(f"every {nth(every)}" if every else "irregularly", sort=every)


_FIELDS = (
    Field[_Row]("Run", lambda row: Cell(row[0].label)),
    Field[_Row](
        "Long steps", lambda row: Cell(f"{row[1].count:,} of {row[1].steps:,}", sort=row[1].count), number=True
    ),
    Field[_Row]("How often", _frequency),
    Field[_Row]("Times the others", lambda row: Cell(*factor(row[1].times), sort=row[1].times), number=True),
    Field[_Row]("Extra time, share of all", lambda row: share_cell(row[1].share), number=True),
)


def build(report_input: ReportInput) -> Section | None:
    """Nothing where no step takes much longer than the others."""
    rows = [(side, spikes) for side in report_input.sides if (spikes := side.detailed.spikes)]
    if not rows:
        return None
    caption = "Steps of more than twice the median, and what they take beyond it"
    notes = " ".join(f"{side.label}: {_why_no_line(spikes)}." for side, spikes in rows if not spikes.lines)
    blocks: list[Block] = [make_table(caption, _FIELDS, rows, notes)]
    blocks += [_lines_table(side, spikes) for side, spikes in rows if spikes.lines]
    return Section("spikes", TITLE, tuple(blocks))


def _why_no_line(spikes: Spikes) -> str:
    if not spikes.enough:
        return f"{spikes.samples or 'no'} stack samples in long steps: too few to tell which lines"
    return "no line stands out in the long steps: the machine, or more of the same work"


def _lines_table(side: ReportSide, spikes: Spikes) -> Table:
    fields = (
        Field[SpikeLine]("Line", lambda line: site_cell(line.site)),
        Field[SpikeLine]("Share of the extra time", lambda line: share_cell(line.share), number=True),
        Field[SpikeLine]("Share of all time", lambda line: share_cell(line.share * spikes.share), number=True),
    )
    note = f"From {spikes.samples:,} stack samples in long steps, compared with those in the others."
    return make_table(f"{side.label}: lines with the extra time", fields, spikes.lines, note)


PLUGIN = SectionPlugin("spikes", TITLE, 33, build)
