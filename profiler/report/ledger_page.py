"""Shows the ledger of a run: what took how long, when, whose and where, and which finding has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

from profiler.analyse.ledger.cells import MAIN, NOT_OWN, RECORDER_KIND, Cell, Ledger, Owner, Period, Recurrence
from profiler.analyse.model import Analysis
from profiler.core.errors import ProfilerError
from profiler.core.units import seconds, share
from profiler.diagnose.claims import Taken, taken_cells
from profiler.diagnose.model import WORTH_NAMING
from profiler.report.blocks import NOTHING, Block, Report, Section, Table, Text
from profiler.report.blocks import Cell as TableCell
from profiler.report.category_text import category_label
from profiler.report.finding_text import finding_text, gain_text
from profiler.report.table import Field, make_table, share_cell, short_site
from profiler.report.text import plural
from profiler.run.model import Site

_MOST_ROWS: Final = 30
_PERIODS: Final = (
    Period.STEPS, Period.UNSEEN, Period.ONE_OFF, Period.BEFORE, Period.BETWEEN, Period.AFTER,
)  # fmt: skip
_SMALLEST: Final = 0.001
"""Share of a period below which a cell has no row."""


def ledger_report(analysis: Analysis, line: str = "") -> Report:
    """The cells of a run, or those of one line.

    :param line: FILE:LINE; FILE may be the end of a path.
    :raises ProfilerError: the run has no ledger, or no cell at that line.
    """
    ledger = analysis.ledger
    if ledger is None or not ledger.cells:
        raise ProfilerError("--ledger: nothing in this run tells what its time was spent on")
    taken = taken_cells(ledger, analysis.findings, analysis.value("steps") or 0.0)
    blocks = tuple(_line_blocks(analysis, ledger, taken, line) if line else _blocks(ledger, taken))
    section = Section("ledger", "Ledger", blocks, brief=blocks)
    return Report(analysis.info.label or analysis.info.run_id or "run", "Ledger", (section,))


def _blocks(ledger: Ledger, taken: Sequence[Taken]) -> Iterator[Block]:
    for (rank, thread, period), wall in sorted(ledger.wall.items(), key=_in_order):
        rows = [Taken(cell, {}) for cell in ledger.of(period, thread, rank)]
        if rows and any(rows[0].cell is each.cell for each in taken):
            rows = list(taken)
        name = f"Rank {rank}, {thread} thread" if thread == MAIN else f"Rank {rank}, device"
        own = sum(each.cell.seconds for each in rows if each.cell.kind not in NOT_OWN)
        shown = [each for each in rows if each.cell.seconds >= _SMALLEST * wall][:_MOST_ROWS]
        rest = len(rows) - len(shown)
        note = f"Shares of the program's own time, {seconds(own)} of {seconds(wall)}."
        note += f" {plural(rest, 'smaller cell')} left out." if rest else ""
        yield _table(f"{name}: {period}, {seconds(wall)}", shown, own, note)


def _in_order(item: tuple[tuple[int, str, Period], float]) -> tuple[int, int, bool]:
    """The steps before other periods, and the device before the thread that waits for it."""
    rank, thread, period = item[0]
    return rank, _PERIODS.index(period), thread == MAIN


def _line_blocks(analysis: Analysis, ledger: Ledger, taken: Sequence[Taken], line: str) -> Iterator[Block]:
    cells = [cell for cell in ledger.cells if _is_at(cell.place, line) or _is_at(cell.entry, line)]
    if not cells:
        raise ProfilerError(
            f"--ledger: no record and no stack sample names {line}; --ledger without a line lists those that are named"
        )
    known = {id(each.cell): each for each in taken}
    rows = [known.get(id(cell)) or Taken(cell, {}) for cell in cells]
    periods = {cell.period for cell in cells}
    period = Period.STEPS if Period.STEPS in periods else cells[0].period
    own = ledger.own_seconds(period)
    yield _table(f"Time at {line}", rows, own, f"Shares of the program's own time in {period}, {seconds(own)}.")
    at_line = [each for each in rows if each.cell.period is period]
    yield Text(" ".join(_why(analysis, at_line, own, period)))


def _why(analysis: Analysis, rows: Sequence[Taken], own: float, period: Period) -> Iterator[str]:
    """Why a line is blamed or is not."""
    total, left = sum(each.cell.seconds for each in rows), sum(each.left for each in rows)
    claims = dict[str, float]()
    for each in rows:
        for rule, amount in each.by.items():
            claims[rule] = claims.get(rule, 0.0) + amount
    by_name = {finding.rule.name: (number, finding) for number, finding in enumerate(analysis.findings, 1)}
    for rule, amount in sorted(claims.items(), key=lambda item: -item[1]):
        number, finding = by_name[rule]
        gain = f", {gain_text(finding)}" if finding.gains else ", no gain is predicted"
        yield f"{share(amount / total)} of it belongs to finding {number}, {rule}: {finding_text(finding).title}{gain}."
    if not claims and period is not Period.STEPS:
        yield f"No finding has it: it is {period}, where no cure has a gain."
    elif left > WORTH_NAMING * total:
        yield f"{'No finding has it' if not claims else f'No finding has the other {share(left / total)}'}."
        if left < WORTH_NAMING * own:
            yield f"It takes {share(left / own)} of the program's own time; a cause must take {share(WORTH_NAMING)}."
        else:
            largest = max(rows, key=lambda each: each.left).cell
            what = category_label(largest.kind), _owner(largest), _when(largest) or period
            yield f"No rule knows a cure for it: {', '.join(what)}."
    if others := [finding for finding in analysis.findings if finding.overlaps and _names(finding.sites, rows)]:
        yield from (f"{each.rule.name} is about the same time as {each.overlaps}." for each in others)


def _names(sites: Sequence[Site], rows: Sequence[Taken]) -> bool:
    places = {each.cell.place.place for each in rows if each.cell.place}
    return any(site.place in places for site in sites)


def _is_at(site: Site | None, line: str) -> bool:
    if site is None:
        return False
    file, _, number = line.rpartition(":")
    return str(site.line) == number and (site.file == file or PurePath(site.file).match(file))


def _table(caption: str, rows: Sequence[Taken], own: float, note: str) -> Table:
    fields = (
        Field[Taken]("Where", _where),
        Field[Taken]("Time", lambda row: TableCell(seconds(row.cell.seconds), sort=row.cell.seconds), number=True),
        Field[Taken]("Share", lambda row: _share(row.cell, own), number=True, bar=True),
        Field[Taken]("What", lambda row: _what(row.cell)),
        Field[Taken]("When", lambda row: TableCell(_when(row.cell) or NOTHING)),
        Field[Taken]("Finding", _finding),
    )
    return make_table(caption, fields, rows, note)


def _where(row: Taken) -> TableCell:
    cell = row.cell
    site = cell.entry or cell.place
    if site is None:
        return TableCell(NOTHING, note=_owner(cell))
    return TableCell(
        short_site(site), note=_owner(cell), title=f"{site.file}:{site.line}", source=site.source, code=True
    )


def _owner(cell: Cell) -> str:
    if cell.owner is Owner.IMPORT:
        return f"import of {cell.package}"
    return f"in {cell.package}" if cell.package else cell.owner.value


def _share(cell: Cell, own: float) -> TableCell:
    if cell.kind in NOT_OWN or not own:
        return TableCell(NOTHING)
    return share_cell(cell.seconds / own, (cell.low / own, cell.high / own))


def _what(cell: Cell) -> TableCell:
    kind = cell.kind if cell.kind == RECORDER_KIND else category_label(cell.kind)
    return TableCell(kind, note=cell.activity, title=cell.function)


def _when(cell: Cell) -> str:
    if cell.recurrence is Recurrence.PERIODIC and cell.every:
        return f"every {cell.every:.0f} steps"
    return "" if cell.recurrence is Recurrence.OUTSIDE else cell.recurrence.value


def _finding(row: Taken) -> TableCell:
    if not row.by:
        return TableCell(NOTHING)
    named = sorted(row.by.items(), key=lambda item: -item[1])
    rule, amount = named[0]
    part = amount / row.cell.seconds
    return TableCell(rule, note="" if part > 1 - WORTH_NAMING else share(part))
