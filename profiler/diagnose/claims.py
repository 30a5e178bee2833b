"""Tells which finding has which cells of the ledger: each cell belongs to one, as far as the cost of findings goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from profiler.analyse.finding import Finding
from profiler.analyse.ledger.cells import DEVICE, GARBAGE_KIND, IMPORT_KIND, MAIN, Cell, Ledger, Period
from profiler.analyse.model import COMMUNICATING, COPYING

_DEVICE_KINDS: Final[Mapping[str, str]] = {COMMUNICATING: "device communication", COPYING: "device copy"}
_PART_OF: Final[Mapping[str, str]] = {GARBAGE_KIND: "python", IMPORT_KIND: "python"}
"""Kinds of cells that findings count as a host category."""
_LEAST: Final = 0.01
"""Share of a cell below which a finding does not have it: what is left over by rounding."""


def with_claims(ledger: Ledger, findings: Iterable[Finding], steps: float) -> Ledger:
    """The ledger with the findings that have its cells.

    Findings take cells of the measured steps in their order: of each category that one costs first those at its lines,
    then others of the same phase, then those of no line. With a queue, they are about the time of the device. A finding
    about the run has all cells of its period.

    :param steps: the number of measured steps.
    """
    thread = DEVICE if any(ledger.of(Period.STEPS, DEVICE)) else MAIN
    cells = list(ledger.of(Period.STEPS, thread))
    left, by = [cell.seconds for cell in cells], [dict[str, float]() for _ in cells]
    periods = dict[Period, str]()
    for finding in findings:
        if finding.period is not None:
            periods[finding.period] = finding.rule.name
        if finding.is_of_run or finding.overlaps:
            continue
        for category, seconds in finding.costs.items():
            rest = seconds * steps
            for at in _order(cells, category, finding, thread):
                part = min(rest, left[at])
                rest -= part
                if part >= _LEAST * cells[at].seconds:
                    left[at] -= part
                    by[at][finding.rule.name] = by[at].get(finding.rule.name, 0.0) + part
    claims = {id(cell): parts for cell, parts in zip(cells, by, strict=True) if parts}
    claims |= {id(cell): {periods[cell.period]: cell.seconds} for cell in ledger.cells if cell.period in periods}
    return replace(
        ledger,
        cells=tuple(replace(cell, findings=claims[id(cell)]) if id(cell) in claims else cell for cell in ledger.cells),
    )


def _order(cells: Sequence[Cell], category: str, finding: Finding, thread: str) -> Iterator[int]:
    """The positions of the cells of a category that a finding may have, the likeliest first."""
    kind = _DEVICE_KINDS.get(category, f"idle: {category}") if thread == DEVICE else category
    alike = [at for at, cell in enumerate(cells) if _PART_OF.get(cell.kind, cell.kind) == kind]
    places = {site.place for site in finding.sites}
    at_lines = [at for at in alike if _is_at(cells[at], places)]
    phases = {cells[at].activity for at in at_lines}
    yield from at_lines
    others = [at for at in alike if at not in at_lines]
    yield from (at for at in others if cells[at].place and (cells[at].activity in phases or not places))
    yield from (at for at in others if not cells[at].place)


def _is_at(cell: Cell, places: set[tuple[str, int]]) -> bool:
    return any(site is not None and site.place in places for site in (cell.place, cell.entry))
