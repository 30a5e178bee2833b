"""The report of a run that was counted: a section of each kind of count, by line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler.analyse.model import SiteCount
from profiler.report.blocks import Block, Cell, Report, Section, Text
from profiler.report.build import local_time
from profiler.report.count_text import (
    KINDS,
    LineCount,
    amount_text,
    head_lines,
    kind_title,
    names_text,
    shown_lines,
    total_text,
)
from profiler.report.table import Field, make_table, site_cell
from profiler.run.model import RunInfo
from profiler.run.tables import CountKind

_NO_LINE: Final = "no line of the program"


def count_report(info: RunInfo, steps: int, counts: tuple[SiteCount, ...]) -> Report:
    """What each line of the program does in a step.

    :param steps: number of steps of the run.
    """
    head = Section("counts", "Counts", tuple(Text(f"{_capital(line)}.") for line in head_lines(info, steps, counts)))
    sections = [
        Section(kind.name.lower(), _capital(kind_title(info, kind)), tuple(_blocks(kind, lines)))
        for kind in KINDS
        if (lines := shown_lines(counts, kind))
    ]
    subtitle = f"Counts · {local_time(info.started_at)}"
    return Report(info.label or info.run_id or "run", subtitle, (head, *sections))


def _blocks(kind: CountKind, lines: tuple[LineCount, ...]) -> Iterator[Block]:
    text = KINDS[kind]

    def amount(line: LineCount) -> Cell:
        value = line.bytes_per_step if text.has_bytes else line.mean
        return Cell(amount_text(kind, value), sort=value)

    def before(line: LineCount) -> Cell:
        value = line.before_bytes if text.has_bytes else line.before
        return Cell(amount_text(kind, value), sort=value)

    fields = (
        Field[LineCount]("Line", lambda line: site_cell(line.site, _NO_LINE)),
        Field[LineCount]("In a step", amount, number=True),
        Field[LineCount]("Until the first step ended", before, number=True),
        Field[LineCount]("Calls", lambda line: Cell(names_text(line, alone=kind is not CountKind.OPERATOR), code=True)),
    )
    yield make_table(_capital(total_text(kind, lines)), fields, lines, text.note)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
