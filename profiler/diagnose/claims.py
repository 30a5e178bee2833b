"""Tells which finding has which cells of the ledger: each cell belongs to one, as far as the cost of findings goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from profiler.analyse.finding import Finding
from profiler.analyse.ledger.cells import DEVICE, GARBAGE_KIND, IMPORT_KIND, MAIN, Cell, Ledger, Period
from profiler.analyse.model import COMMUNICATING, COPYING

_DEVICE_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    COMMUNICATING: ("device communication",),
    COPYING: ("device copy",),
    "framework": ("idle: framework", "idle: launch"),  # in a trace, launches are the framework's calls
}
_PART_OF: Final[Mapping[str, str]] = {GARBAGE_KIND: "python", IMPORT_KIND: "python"}
"""Kinds of cells that findings count as a host category."""
_LEAST: Final = 0.01
"""Share of a cell, or of what a finding costs, that is left over by rounding."""


def with_claims(ledger: Ledger, findings: Iterable[Finding]) -> Ledger:
    """The ledger with the findings that have its cells.

    Findings take cells of the measured steps in their order: of each category that one costs first those at its lines,
    and below them, then others of the same phase, then those of no line. What a finding costs beyond that is of this
    category, but the samples do not tell of which lines. With a queue, findings are about the time of the device. A
    finding about the run has all cells of its period.
    """
    thread = DEVICE if any(ledger.of(Period.STEPS, DEVICE)) else MAIN
    cells = list(ledger.of(Period.STEPS, thread))
    left, by = [cell.seconds for cell in cells], [dict[str, float]() for _ in cells]
    periods, unplaced = dict[Period, str](), dict[str, dict[str, float]]()
    for finding in findings:
        name = finding.rule.name
        if finding.period is not None:
            periods[finding.period] = name
        if finding.is_of_run or finding.overlaps:
            continue
        for category, seconds in finding.costs.items():
            rest = whole = seconds * ledger.steps.get(thread, 0)
            for at in _order(cells, category, finding, thread):
                part = min(rest, left[at])
                rest -= part
                if part >= _LEAST * cells[at].seconds:
                    left[at] -= part
                    by[at][name] = by[at].get(name, 0.0) + part
            if rest > _LEAST * whole:
                for kind in _kinds(category, thread):
                    unplaced.setdefault(kind, {})[name] = rest
    claims = {id(cell): parts for cell, parts in zip(cells, by, strict=True) if parts}
    claims |= {id(cell): {periods[cell.period]: cell.seconds} for cell in ledger.cells if cell.period in periods}
    named = (replace(cell, findings=claims[id(cell)]) if id(cell) in claims else cell for cell in ledger.cells)
    return replace(ledger, cells=tuple(named), unplaced=unplaced)


def _kinds(category: str, thread: str) -> tuple[str, ...]:
    """The kinds of cells that a category of a finding's cost has."""
    return _DEVICE_KINDS.get(category, (f"idle: {category}",)) if thread == DEVICE else (category,)


def _order(cells: Sequence[Cell], category: str, finding: Finding, thread: str) -> Iterator[int]:
    """The positions of the cells of a category that a finding may have, the likeliest first."""
    kinds = _kinds(category, thread)
    alike = [at for at, cell in enumerate(cells) if _PART_OF.get(cell.kind, cell.kind) in kinds]
    places = {site.place for site in finding.sites}
    at_lines = [at for at in alike if cells[at].is_at(places)]
    phases = {cells[at].activity for at in at_lines}
    yield from at_lines
    others = [at for at in alike if at not in at_lines]
    # where no cell is at its lines, as of a dataset in workers, the time of this kind is its consequence
    yield from (at for at in others if cells[at].place and (cells[at].activity in phases or not at_lines))
    yield from (at for at in others if not cells[at].place)
