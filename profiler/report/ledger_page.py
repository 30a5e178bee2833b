"""Shows the ledger of a run: what took how long, when, whose and where, and which finding has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

from profiler.analyse.ledger.cells import MAIN, RECORDER_KIND, SMALLEST, Cell, Ledger, Owner, Period, Recurrence
from profiler.analyse.model import Analysis
from profiler.core.errors import ProfilerError
from profiler.core.units import seconds, share
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
"""In the order in which they are shown."""


def ledger_report(analysis: Analysis, line: str = "") -> Report:
    """The cells of a run, or those of one line.

    :param line: FILE:LINE; FILE may be the end of a path.
    :raises ProfilerError: the run has no ledger, or no cell at that line.
    """
    ledger = analysis.ledger
    if ledger is None or not ledger.cells:
        raise ProfilerError("--ledger: nothing in this run tells what its time was spent on")
    blocks = tuple(_line_blocks(analysis, ledger, line) if line else _blocks(ledger))
    section = Section("ledger", "Ledger", blocks, brief=blocks)
    return Report(analysis.info.label or analysis.info.run_id or "run", "Ledger", (section,))


def _blocks(ledger: Ledger) -> Iterator[Block]:
    for (rank, thread, period), wall in sorted(ledger.wall.items(), key=_in_order):
        cells = list(ledger.of(period, thread, rank))
        own = sum(cell.seconds for cell in cells if cell.is_own)
        shown = [cell for cell in cells if cell.seconds >= SMALLEST * wall][:_MOST_ROWS]
        rest = len(cells) - len(shown)
        note = f"Shares of the program's own time, {seconds(own)} of {seconds(wall)}."
        note += f" {plural(rest, 'smaller cell')} left out." if rest else ""
        name = f"Rank {rank}, {thread} thread" if thread == MAIN else f"Rank {rank}, device"
        yield _table(f"{name}: {period}, {seconds(wall)}", shown, own, note)


def _in_order(item: tuple[tuple[int, str, Period], float]) -> tuple[int, int, bool]:
    """The steps before other periods, and the device before the thread that waits for it."""
    rank, thread, period = item[0]
    return rank, _PERIODS.index(period), thread == MAIN


# ---------------------------------------------------------------- one line


def _line_blocks(analysis: Analysis, ledger: Ledger, line: str) -> Iterator[Block]:
    cells = [cell for cell in ledger.cells if _is_at(cell.place, line) or _is_at(cell.entry, line)]
    if not cells:
        raise ProfilerError(
            f"--ledger: no record and no stack sample names {line}; --ledger without a line lists those that are named"
        )
    period = min((cell.period for cell in cells), key=_PERIODS.index)
    of_period = [cell for cell in cells if cell.period is period]
    own = ledger.own_seconds(period)
    yield _table(f"Time at {line}", cells, own, f"Shares of the program's own time in {period}, {seconds(own)}.")
    yield Text(" ".join(_why(analysis, of_period, own)))


def _is_at(site: Site | None, line: str) -> bool:
    file, _, number = line.rpartition(":")
    return site is not None and str(site.line) == number and (site.file == file or PurePath(site.file).match(file))


def _why(analysis: Analysis, cells: Sequence[Cell], own: float) -> Iterator[str]:
    """Why a line is blamed, or is not."""
    total, left, claims = sum(cell.seconds for cell in cells), sum(cell.left for cell in cells), Counter[str]()
    for cell in cells:
        claims.update(cell.findings)
    numbered = {finding.rule.name: (number, finding) for number, finding in enumerate(analysis.findings, 1)}
    for rule, amount in claims.most_common():
        number, finding = numbered[rule]
        gain = f", {gain_text(finding)}" if finding.gains else ", no gain is predicted"
        yield f"{share(amount / total)} of it belongs to finding {number}, {rule}: {finding_text(finding).title}{gain}."
    if left > WORTH_NAMING * total:
        yield f"No finding has the other {share(left / total)}." if claims else "No finding has it."
        yield _why_not(max(cells, key=lambda cell: cell.left), left, own)
    places = {cell.place.place for cell in cells if cell.place}
    for finding in analysis.findings:
        if finding.overlaps and any(site.place in places for site in finding.sites):
            yield f"{finding.rule.name} is about the same time as {finding.overlaps}."


def _why_not(largest: Cell, left: float, own: float) -> str:
    """Why no finding has time of a line, of which `largest` is the largest cell."""
    if largest.period is not Period.STEPS:
        return f"It is time {largest.period}, where no cure has a gain."
    if left < WORTH_NAMING * own:
        return f"It takes {share(left / own)} of the program's own time; a cause must take {share(WORTH_NAMING)}."
    return f"No rule knows a cure for it: {category_label(largest.kind)}, {_owner(largest)}, {_when(largest)}."


# ---------------------------------------------------------------- the table


def _table(caption: str, cells: Sequence[Cell], own: float, note: str) -> Table:
    fields = (
        Field[Cell]("Where", _where),
        Field[Cell]("Time", lambda cell: TableCell(seconds(cell.seconds), sort=cell.seconds), number=True),
        Field[Cell]("Share", lambda cell: _share(cell, own), number=True, bar=True),
        Field[Cell]("What", _what),
        Field[Cell]("When", lambda cell: TableCell(_when(cell) or NOTHING)),
        Field[Cell]("Finding", _finding),
    )
    return make_table(caption, fields, cells, note)


def _where(cell: Cell) -> TableCell:
    site = cell.entry or cell.place
    if site is None:
        return TableCell(NOTHING, note=_owner(cell))
    title = f"{site.file}:{site.line}"
    return TableCell(short_site(site), note=_owner(cell), title=title, source=site.source, code=True)


def _owner(cell: Cell) -> str:
    if cell.owner is Owner.IMPORT:
        return f"import of {cell.package}"
    return f"in {cell.package}" if cell.package else cell.owner.value


def _share(cell: Cell, own: float) -> TableCell:
    if not cell.is_own or not own:
        return TableCell(NOTHING)
    return share_cell(cell.seconds / own, (cell.low / own, cell.high / own))


def _what(cell: Cell) -> TableCell:
    kind = cell.kind if cell.kind == RECORDER_KIND else category_label(cell.kind)
    return TableCell(kind, note=cell.activity, title=cell.function)


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
