"""Tells which finding has which cells of the ledger: each cell belongs to one, as far as the cost of findings goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from profiler.analyse.finding import Finding
from profiler.analyse.ledger.cells import DEVICE, GARBAGE_KIND, IMPORT_KIND, Cell, Ledger, Period
from profiler.analyse.model import COMMUNICATING, COPYING
from profiler.run.model import Site

_DEVICE_KINDS: Final[Mapping[str, str]] = {COMMUNICATING: "device communication", COPYING: "device copy"}
_PART_OF: Final[Mapping[str, str]] = {GARBAGE_KIND: "python", IMPORT_KIND: "python"}
"""Kinds of cells that findings count as a host category."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Taken:
    """A cell with the findings that have it."""

    cell: Cell
    by: Mapping[str, float]
    """Name of a rule -> its seconds of the cell."""

    @property
    def left(self) -> float:
        """Seconds that no finding has."""
        return max(0.0, self.cell.seconds - sum(self.by.values()))


def taken_cells(ledger: Ledger, findings: Iterable[Finding], steps: float) -> tuple[Taken, ...]:
    """The cells of the run's measured steps with the findings that have them, those with most seconds first.

    Findings take cells in their order: of each category that one costs first those at its lines, then others.

    :param steps: the number of measured steps.
    """
    has_queue = any(cell.thread == DEVICE for cell in ledger.of(Period.STEPS, DEVICE))
    cells = list(ledger.of(Period.STEPS, DEVICE) if has_queue else ledger.of(Period.STEPS))
    left, by = [cell.seconds for cell in cells], [dict[str, float]() for _ in cells]
    for finding in findings:
        if finding.is_of_run or finding.overlaps:
            continue
        for category, seconds in finding.costs.items():
            rest = seconds * steps
            for at in _order(cells, category, finding.sites, has_queue=has_queue):
                part = min(rest, left[at])
                if part > _ROUNDING:
                    left[at] -= part
                    rest -= part
                    by[at][finding.rule.name] = by[at].get(finding.rule.name, 0.0) + part
    return tuple(Taken(cell, parts) for cell, parts in zip(cells, by, strict=True))


def _order(cells: Sequence[Cell], category: str, sites: Iterable[Site], *, has_queue: bool) -> list[int]:
    """The positions of the cells of a category, those at these lines first."""
    kind = _DEVICE_KINDS.get(category, f"idle: {category}") if has_queue else category
    named = {site.place for site in sites}
    alike = [at for at, cell in enumerate(cells) if _PART_OF.get(cell.kind, cell.kind) == kind]
    return sorted(alike, key=lambda at: not _is_at(cells[at], named))


def _is_at(cell: Cell, places: set[tuple[str, int]]) -> bool:
    return any(site is not None and site.place in places for site in (cell.place, cell.entry))
