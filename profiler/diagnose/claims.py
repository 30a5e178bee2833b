"""Tells which finding has which cells of the ledger: each cell belongs to one, as far as the cost of findings goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from profiler.analyse.finding import Finding
from profiler.analyse.ledger.cells import DEVICE, GARBAGE_KIND, IMPORT_KIND, MAIN, Cell, Ledger, Period
from profiler.analyse.model import COMMUNICATING, COPYING
from profiler.run.model import Site

_DEVICE_KINDS: Final[Mapping[str, str]] = {COMMUNICATING: "device communication", COPYING: "device copy"}
_PART_OF: Final[Mapping[str, str]] = {GARBAGE_KIND: "python", IMPORT_KIND: "python"}
"""Kinds of cells that findings count as a host category."""
_ROUNDING: Final = 1e-9


def with_claims(ledger: Ledger, findings: Iterable[Finding], steps: float) -> Ledger:
    """The ledger with the findings that have its cells.

    Findings take cells of the measured steps in their order: of each category that one costs first those at its lines,
    then others. With a queue, they are about the time of the device.

    :param steps: the number of measured steps.
    """
    thread = DEVICE if any(ledger.of(Period.STEPS, DEVICE)) else MAIN
    cells = list(ledger.of(Period.STEPS, thread))
    left, by = [cell.seconds for cell in cells], [dict[str, float]() for _ in cells]
    for finding in findings:
        if finding.is_of_run or finding.overlaps:
            continue
        for category, seconds in finding.costs.items():
            rest = seconds * steps
            for at in _order(cells, category, finding.sites, thread):
                part = min(rest, left[at])
                if part > _ROUNDING:
                    left[at] -= part
                    rest -= part
                    by[at][finding.rule.name] = by[at].get(finding.rule.name, 0.0) + part
    named = {id(cell): replace(cell, findings=parts) for cell, parts in zip(cells, by, strict=True) if parts}
    return replace(ledger, cells=tuple(named.get(id(cell), cell) for cell in ledger.cells))


def _order(cells: Sequence[Cell], category: str, sites: Iterable[Site], thread: str) -> list[int]:
    """The positions of the cells of a category, those at these lines first."""
    kind = _DEVICE_KINDS.get(category, f"idle: {category}") if thread == DEVICE else category
    named = {site.place for site in sites}
    alike = [at for at, cell in enumerate(cells) if _PART_OF.get(cell.kind, cell.kind) == kind]
    return sorted(alike, key=lambda at: not _is_at(cells[at], named))


def _is_at(cell: Cell, places: set[tuple[str, int]]) -> bool:
    return any(site is not None and site.place in places for site in (cell.place, cell.entry))
