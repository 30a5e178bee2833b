"""Shows the ledger of a run: what took how long, when, whose and where, and which finding has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.ledger import DEVICE, MAIN, RECORDER_KIND, SMALLEST, Cell, Ledger, Owner, Period, Recurrence
from profiler.core.errors import ProfilerError
from profiler.core.units import seconds, share
from profiler.diagnose.model import WORTH_NAMING
from profiler.report.blocks import NOTHING, Block, Report, Section, Table, Text
from profiler.report.blocks import Cell as TableCell
from profiler.report.category_text import category_label
from profiler.report.finding_text import doubt_text, finding_text, gain_text
from profiler.report.table import Field, make_table, share_cell, short_site
from profiler.report.text import listed, plural

_MOST_ROWS: Final = 30
_PERIODS: Final = (
    Period.STEPS, Period.UNSEEN, Period.ONE_OFF, Period.BEFORE, Period.BETWEEN, Period.AFTER,
)  # fmt: skip
"""In the order in which they are shown."""


def ledger_report(analysis: Analysis, line: str = "") -> Report:
    """Return the cells of a run, or those of one line.

    :param line: FILE:LINE; FILE may be the end of a path.
    :raises ProfilerError: the run has no ledger, or `line` is no line.
    """
    ledger = analysis.ledger
    if ledger is None or not ledger.cells:
        raise ProfilerError("--ledger: nothing in this run tells what its time was spent on")
    blocks = tuple(_line_blocks(analysis, ledger, line) if line else _blocks(ledger))
    section = Section("ledger", "Ledger", blocks, brief=blocks)
    return Report(analysis.info.label or analysis.info.run_id or "run", "Ledger", (section,))


def _blocks(ledger: Ledger) -> Iterator[Block]:
    # the steps before other periods, and the device before the thread that waits for it
    for rank, thread, period in sorted(ledger.wall, key=lambda key: (key[0], _PERIODS.index(key[2]), key[1] == MAIN)):
        wall = ledger.wall[rank, thread, period]
        cells = list(ledger.of(period, thread, rank))
        own = ledger.own_seconds(period, thread, rank)
        shown = [cell for cell in cells if cell.seconds >= SMALLEST * wall][:_MOST_ROWS]
        rest = len(cells) - len(shown)
        note = f"Shares of the program's own time, {seconds(own)} of {seconds(wall)}."
        note += f" {plural(rest, 'smaller cell')} left out." if rest else ""
        moved = ledger.moved.get(rank, 0.0) if thread == MAIN and period is Period.STEPS else 0.0
        if moved > WORTH_NAMING:
            note += f" Samples and records disagree about the kind of {share(moved)} of it."
        name = f"Rank {rank}, {thread} thread" if thread == MAIN else f"Rank {rank}, device"
        yield _table(f"{name}: {period}, {seconds(wall)}", shown, own, note, _WHERE)


# ---------------------------------------------------------------- one line


def _line_blocks(analysis: Analysis, ledger: Ledger, line: str) -> Iterator[Block]:
    file, _, number = line.rpartition(":")
    if not file or not number.isdecimal():
        raise ProfilerError(f"--ledger: {line!r} is no line: write FILE:LINE, such as train.py:20")
    tables = [
        (period, thread, cells)
        for period in _PERIODS
        for thread in (DEVICE, MAIN)
        if (cells := [cell for cell in ledger.of(period, thread) if any(_is_at(place, line) for place in cell.lines)])
    ]
    if not tables:
        yield Text(_no_time(analysis, ledger, line))
    elif not any(period is Period.STEPS for period, _, _ in tables) and (named := _named(analysis, line)):
        yield Text(named)
    claimed = DEVICE if any(ledger.of(Period.STEPS, DEVICE)) else MAIN
    for period, thread, cells in tables:
        own = ledger.own_seconds(period, thread)
        shown = [cell for cell in cells if cell.seconds >= SMALLEST * ledger.wall[ledger.rank, thread, period]]
        of_device = " of the device" if thread == DEVICE else ""
        note = f"Shares of the program's own time{of_device} {_WHEN[period]}, {seconds(own)}."
        yield _table(f"{line} {_WHEN[period]}{of_device}", shown or cells, own, note, _INSIDE)
        if period is Period.STEPS and thread != claimed:
            yield Text("Time of the host counts only while the device is idle.")
        else:
            yield Text(" ".join(_why(analysis, ledger, cells, own)))


def _is_at(place: tuple[str, int], line: str) -> bool:
    file, _, number = line.rpartition(":")
    return str(place[1]) == number and (place[0] == file or PurePath(place[0]).match(file))


def _no_time(analysis: Analysis, ledger: Ledger, line: str) -> str:
    """Tell why nothing is known of a line: it only calls what takes time, or it takes too little for a sample."""
    if not any(cell.place for cell in ledger.cells):
        return f"No time is known of {line}: no line was recorded, as at level light. Record with --level standard."
    text = f"No time is known of {line} itself: no record names it, and no stack sample shows it as the innermost line."
    if named := _named(analysis, line):
        return f"{text} {named}"
    file = line.rpartition(":")[0]
    if not any(place[0] == file or PurePath(place[0]).match(file) for cell in ledger.cells for place in cell.lines):
        return f"{text} The recording shows no line of {file}. --ledger without a line lists all cells."
    return f"{text} It takes little time, or only calls what takes time. --ledger without a line lists all cells."


def _named(analysis: Analysis, line: str) -> str:
    """Tell which finding names a line that has no time of the measured steps itself; empty: none does."""
    for finding in (each for each in analysis.findings if each.has_cure):
        if any(_is_at(site.place, line) for site in finding.sites):
            title = finding_text(finding).title
            return (
                f"{finding.rule.name} is about this line: {title}. The time is in what the line calls, or at lines "
                "that are not known."
            )
    return ""


def _why(analysis: Analysis, ledger: Ledger, cells: Sequence[Cell], own: float) -> Iterator[str]:
    """Tell why a line is blamed, or is not."""
    total, left, claims = sum(cell.seconds for cell in cells), sum(cell.left for cell in cells), Counter[str]()
    for cell in cells:
        claims.update(cell.findings)
    by_name = {finding.rule.name: finding for finding in analysis.findings}
    for rule, amount in claims.most_common():
        finding = by_name[rule]
        gain = gain_text(finding) or "no gain is predicted"
        doubt = f" ({doubt_text(finding)})" if doubt_text(finding) else ""
        yield f"{share(amount / total)} of it belongs to {rule}: {finding_text(finding).title}, {gain}{doubt}."
    if left > WORTH_NAMING * total:
        yield f"No rule claims the other {share(left / total)}." if claims else "No rule claims it."
        largest = max(cells, key=lambda cell: cell.left)
        others = ledger.unplaced.get(largest.kind, {}) if largest.period is Period.STEPS else {}
        if others:
            names = listed(sorted(others))
            yield f"Part of it may belong to {names}. The lines of these findings are not known."
        else:
            yield _why_not(largest, left, own)
    places = {cell.place.place for cell in cells if cell.place}
    for finding in analysis.findings:
        if finding.overlaps and any(site.place in places for site in finding.sites):
            yield f"{finding.rule.name} is about the same time as {finding.overlaps}."


def _why_not(largest: Cell, left: float, own: float) -> str:
    """Tell why no finding has time of a line, of which `largest` is the largest cell."""
    if largest.period is Period.UNSEEN:
        return "The run has no step, so no gain is predicted."
    if largest.period is Period.BETWEEN:
        return "Pauses, and steps that are not measured, are not judged."
    if largest.period is not Period.STEPS:
        return f"Time {_WHEN[largest.period]} does not recur, so no gain is predicted."
    if left < WORTH_NAMING * own:
        return f"It takes {share(left / own)} of the program's own time; a cause must take {share(WORTH_NAMING)}."
    where = f" in {largest.function}" if largest.function else ""
    return f"Most of it is {category_label(largest.kind)}{where}, {_when(largest)}. No rule recognizes a cause in it."


_WHEN: Final = {
    Period.STEPS: "in the measured steps",
    Period.UNSEEN: "in a run without a step",
    Period.ONE_OFF: "in steps with one-off work",
    Period.BEFORE: "before the measured steps",
    Period.BETWEEN: "between the measured steps",
    Period.AFTER: "after the measured steps",
}


# ---------------------------------------------------------------- the table


def _table(caption: str, cells: Sequence[Cell], own: float, note: str, first: Field[Cell]) -> Table:
    def of_own(cell: Cell) -> TableCell:
        if not cell.is_own or not own:
            return TableCell(NOTHING)
        return share_cell(cell.seconds / own, (cell.low / own, cell.high / own))

    def what(cell: Cell) -> TableCell:
        kind = cell.kind if cell.kind == RECORDER_KIND else category_label(cell.kind)
        return TableCell(kind, note=cell.activity, title=cell.function)

    fields = (
        first,
        Field[Cell]("Time", lambda cell: TableCell(seconds(cell.seconds), sort=cell.seconds), number=True),
        Field[Cell]("Share", of_own, number=True, bar=True),
        Field[Cell]("What", what),
        Field[Cell]("When", lambda cell: TableCell(_when(cell) or NOTHING)),
        Field[Cell]("Finding", _finding),
    )
    return make_table(caption, fields, cells, note)


def _where(cell: Cell) -> TableCell:
    site = cell.place
    if site is None:
        return TableCell(NOTHING, note=_owner(cell))
    title, entry = f"{site.file}:{site.line}", cell.entry if cell.entry != site else None
    note = ", ".join(filter(None, (_owner(cell), f"below line {entry.line}" if entry else "")))
    return TableCell(short_site(site), note=note, title=title, source=site.source, code=True)


def _inside(cell: Cell) -> TableCell:
    """Return the function in which a line spends its time, and whose it is."""
    if cell.owner is Owner.IMPORT:
        return TableCell(_owner(cell))
    own = cell.place.function if cell.place else ""  # of a line that calls it, too
    name = ".".join((cell.function or own).replace("<locals>.", "").split(".")[-2:])
    return TableCell(name or "the line itself", note=_owner(cell), title=cell.function, code=bool(name))


_WHERE: Final = Field[Cell]("Where", _where)
_INSIDE: Final = Field[Cell]("Inside", _inside)


def _owner(cell: Cell) -> str:
    if cell.owner is Owner.IMPORT:
        return f"import of {cell.package}"
    return f"in {cell.package}" if cell.package else cell.owner.value


def _when(cell: Cell) -> str:
    if cell.recurrence is Recurrence.PERIODIC and cell.every:
        return f"every {cell.every:.0f} steps"
    return "" if cell.recurrence is Recurrence.OUTSIDE else cell.recurrence.value


def _finding(cell: Cell) -> TableCell:
    rule, amount = max(cell.findings.items(), key=lambda item: item[1], default=("", 0.0))
    if not rule:
        return TableCell(NOTHING)
    part = amount / cell.seconds
    return TableCell(rule, note="" if part > 1 - WORTH_NAMING else share(part))
