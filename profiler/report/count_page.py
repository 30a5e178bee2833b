"""Shows the report of a run that was counted: a section of each kind of count, by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from profiler.analyse.model.comparison import Mismatch
from profiler.analyse.model.device import RunCounts, SiteCount
from profiler.report.blocks import Block, Callout, Cell, Report, Section, Table, Text
from profiler.report.build import local_time
from profiler.report.count_text import (
    KINDS,
    NO_LINE,
    ComparedCount,
    LineCount,
    amount_text,
    change_text,
    compared_counts,
    frame_text,
    head_lines,
    kind_title,
    line_amount,
    names_text,
    shown_lines,
    total_text,
)
from profiler.report.table import Field, make_table, site_cell
from profiler.report.text import capitalized, mismatches, plural
from profiler.run.tables import CountKind


def count_report(counted: RunCounts) -> Report:
    """What each line of the program does in a step."""
    info = counted.info
    head = Section("counts", "Counts", tuple(Text(f"{capitalized(line)}.") for line in head_lines(counted)))
    sections = [
        Section(kind.name.lower(), capitalized(kind_title(info, kind)), blocks)
        for kind in KINDS
        if (blocks := tuple(_blocks(counted.counts, kind)))
    ]
    subtitle = f"Counts · {local_time(info.started_at)}"
    return Report(info.label or info.run_id or "run", subtitle, (head, *sections))


def compared_counts_report(sides: Sequence[RunCounts], differences: Sequence[Mismatch] = ()) -> Report:
    """The counts of two programs, per step: all kinds in one table, then their lines.

    :param differences: the facts in which the sides differ, so that they do not do the same.
    """
    rows = compared_counts(sides)
    fields = [Field[ComparedCount]("In a step", lambda row: Cell(capitalized(row.title), strong=True))]
    fields += [Field(side.label, partial(_side_cell, index), number=True) for index, side in enumerate(sides)]
    fields.append(Field[ComparedCount]("Change", lambda row: Cell(change_text(row.amounts[0], row.amounts[-1]))))
    table = make_table("Counts of both sides", fields, rows, "Counts are exact. No times were recorded.")
    steps = ", ".join(f"{side.label}: {plural(side.steps, 'step')}" for side in sides)
    text = f"The sides differ in what they are given: {mismatches(differences)}."
    warning = (Callout(text, "warning", "Not the same work"),) if differences else ()
    head = Section("counts", "Counts", (*warning, Text(f"{steps}."), table), brief=(*warning, table))
    sections = [
        Section(kind.name.lower(), capitalized(KINDS[kind].title), tuple(blocks))
        for kind in KINDS
        if (blocks := list(_sides_blocks(sides, kind)))
    ]
    title = " against ".join(side.label for side in reversed(sides))
    return Report(title, f"Counts · {local_time(sides[-1].info.started_at)}", (head, *sections))


def _side_cell(index: int, row: ComparedCount) -> Cell:
    return Cell(row.text(index), sort=row.amounts[index])


def _sides_blocks(sides: Sequence[RunCounts], kind: CountKind) -> Iterator[Block]:
    for side in sides:
        for block in _blocks(side.counts, kind):
            yield replace(block, caption=f"{side.label}: {block.caption}") if isinstance(block, Table) else block


def _blocks(counts: tuple[SiteCount, ...], kind: CountKind) -> Iterator[Block]:
    text, lines = KINDS[kind], shown_lines(counts, kind)
    if not lines:
        return

    def amount(line: LineCount) -> Cell:
        others = "" if text.has_bytes else line.steps.in_others
        value = line.bytes_per_step if text.has_bytes else line.mean
        return Cell(f"{line_amount(kind, line)}{others and f'; {others}'}", sort=value)

    def before(line: LineCount) -> Cell:
        value = line.before_bytes if text.has_bytes else line.before
        return Cell(amount_text(kind, value), sort=value)

    frames = Field[LineCount]("In a library", lambda line: Cell(", ".join(map(frame_text, line.frames)), code=True))
    fields = (
        Field[LineCount]("Line", lambda line: site_cell(line.site, NO_LINE)),
        *([frames] if any(line.frames for line in lines) else []),
        Field[LineCount]("In a usual step", amount, number=True),
        Field[LineCount]("Before the first step ended", before, number=True),
        Field[LineCount]("Calls", lambda line: Cell(names_text(kind, line), code=True)),
    )
    yield make_table(capitalized(total_text(counts, kind)), fields, lines, text.note)
