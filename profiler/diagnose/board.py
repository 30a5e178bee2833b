"""Gives each cell of the measured steps to one claim, and keeps what is left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, TypeVar

from profiler.analyse.model.finding import Place
from profiler.analyse.model.host import LineCost
from profiler.analyse.model.ledger import DEVICE, GARBAGE_KIND, IMPORT_KIND, MAIN, Cell, Ledger, Owner, Period
from profiler.diagnose.model import MOST, WORTH_NAMING
from profiler.diagnose.rule import MAX_SITES, Claim, Cost, StepCosts, total_seconds
from profiler.run.model import Site

T = TypeVar("T")
_LEAST: Final = 0.01
"""Share of a cell, or of what a claim costs, that is left over by rounding."""
_TELLING: Final = (
    *("torch._tensor.Tensor.__iter__", "torch.distributed.", "torch.distributions.", "torch.nn.parallel."),
    *("torch.nn.utils.", "torch.serialization.", "torch.utils."),
)
"""Beginnings of functions of torch that tell more than the line that calls them."""


@dataclass(eq=False, slots=True)
class Part:
    """A cell, as much of it as no claim has."""

    cell: Cell
    category: str
    seconds: float
    """Per step."""
    left: float
    by: dict[str, float] = field(default_factory=dict)
    """Name of a rule -> seconds per step that its claim has."""


@dataclass(frozen=True, slots=True)
class Want:
    """What a claim costs in one category: in cells, and beyond what they hold."""

    category: str
    seconds: float
    parts: tuple[tuple[Part, float], ...]

    @property
    def rest(self) -> float:
        """Return the seconds of which the samples do not tell the lines."""
        return max(0.0, self.seconds - sum(amount for _, amount in self.parts))


@dataclass(slots=True)
class Lines:
    """Time by line, and by the function and the library in which it is spent."""

    _of: defaultdict[Site, list[tuple[Cell, float]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, cell: Cell, seconds: float) -> None:
        """Add seconds per step of a cell, where its line is known."""
        if cell.place is not None and seconds > 0:
            self._of[cell.place].append((cell, seconds))

    def __bool__(self) -> bool:
        return bool(self._of)

    def places(self, step: float) -> tuple[Place, ...]:
        """Return the lines that are worth naming, the largest first; most of their time decides what they call.

        :param step: seconds of a step, of which they have shares.
        """
        places = []
        for site, parts in self._of.items():
            whole = sum(seconds for _, seconds in parts)
            if whole >= WORTH_NAMING * step:
                functions, packages = defaultdict[str, float](float), defaultdict[str, float](float)
                callers, lines = defaultdict[str, float](float), defaultdict[Site | None, float](float)
                for cell, seconds in parts:
                    if function := _telling_function(cell):
                        functions[function] += seconds
                    packages[cell.package if cell.owner is Owner.LIBRARY else ""] += seconds
                    callers[cell.called_by] += seconds
                    lines[cell.registered_at] += seconds
                inside, package, called_by = (_most(each, whole) or "" for each in (functions, packages, callers))
                places.append(Place(site, min(1.0, whole / step), inside, package, called_by, _most(lines, whole)))
        return tuple(sorted(places, key=lambda place: -place.share)[:MAX_SITES])

    def functions(self, step: float) -> Iterator[Place]:
        """Yield each function of each line with its share of a step, and the largest line first."""
        shares = defaultdict[tuple[Site, str, str, str], float](float)
        for site, parts in self._of.items():
            for cell, seconds in parts:
                package = cell.package if cell.owner is Owner.LIBRARY else ""
                shares[site, _telling_function(cell), package, cell.called_by] += seconds / step
        for (site, inside, package, called_by), share in sorted(shares.items(), key=lambda each: -each[1]):
            yield Place(site, min(1.0, share), inside, package, called_by)


def _telling_function(cell: Cell) -> str:
    """Return the function in which a cell's time is, where that tells more than the line; else empty."""
    is_telling = cell.owner in (Owner.LIBRARY, Owner.PYTHON) or cell.function.startswith(_TELLING)
    return cell.function if is_telling else ""


def _most(parts: Mapping[T, float], whole: float) -> T | None:
    return next((each for each, amount in parts.items() if amount > MOST * whole), None)


class Board:
    """The cells of the measured steps of one thread, and who has them.

    A claim takes time of its categories in this order: cells at its lines, cells of the same phase, cells without a
    line, and time of the category with an unknown line. Two claims compete where they are about the same line,
    or where both together cost more than there is of a category.
    """

    def __init__(self, costs: StepCosts) -> None:
        self.costs = costs
        self._ledger = costs.analysis.ledger
        self._thread = DEVICE if costs.has_queue else MAIN
        self._steps = self._ledger.steps.get(self._thread, 0) if self._ledger else 0
        self.parts = [Part(cell, category, seconds, seconds) for category, seconds, cell in costs.cells]
        self._of = defaultdict[str, list[Part]](list)
        for part in self.parts:
            self._of[part.category].append(part)
        self._left = {name: cost.seconds for name, cost in costs.categories.items()}
        if self._steps and self._thread == MAIN:  # what recording takes is a cell of its own
            for name in self._left:
                self._left[name] = sum(part.seconds for part in self._of[name])
        self._by = dict[str, dict[str, float]]()
        self._unplaced = dict[str, dict[str, float]]()

    def wants(self, claim: Claim, *, of_rest: bool = False) -> tuple[Want, ...]:
        """Return what a claim would have if it were the only one.

        :param of_rest: it is about all that other claims leave of its categories.
        """
        wants = []
        for category, cost in claim.costs.items():
            rest, parts = cost.seconds, []
            for part in self._order(category, () if of_rest else claim.sites):
                amount = min(rest, part.left if of_rest else part.seconds)
                rest -= amount
                if amount > _LEAST * part.seconds:
                    parts.append((part, amount))
            if of_rest:
                in_cells = sum(part.left for part in self._of[category])
                rest = min(rest, max(0.0, self._left.get(category, 0.0) - in_cells))
            wants.append(Want(category, sum(amount for _, amount in parts) + rest, tuple(parts)))
        return tuple(wants)

    def _order(self, category: str, sites: Iterable[Site]) -> Iterator[Part]:
        """Yield the cells of a category that a claim about these lines is about, the likeliest first."""
        places = {site.place for site in sites}
        at_lines, others = list[Part](), list[Part]()
        for part in self._of[category]:
            (at_lines if part.cell.is_at(places) else others).append(part)
        yield from at_lines
        phases = {part.cell.activity for part in at_lines}
        # where no cell is at its lines, as of a dataset in workers, the time of this kind is its consequence
        yield from (part for part in others if part.cell.place and (part.cell.activity in phases or not at_lines))
        yield from (part for part in others if not part.cell.place)

    def left(self, want: Want) -> float:
        """Return the seconds of what is wanted that no claim has."""
        free = sum(min(amount, part.left) for part, amount in want.parts) + want.rest
        return max(0.0, min(free, self._left.get(want.category, 0.0)))

    def free(self, category: str) -> Iterator[tuple[Part | None, float]]:
        """Yield the seconds per step of a category that no claim has, in cells, and in none where cells do not tell."""
        left = max(0.0, self._left.get(category, 0.0))
        parts = [part for part in self._of[category] if part.left > 0]
        whole = sum(part.left for part in parts)
        yield from ((part, part.left * min(1.0, left / whole)) for part in parts)
        if left > whole:
            yield None, left - whole

    def share_left(self, category: str) -> float:
        whole = self.costs.cost(category).seconds
        return min(1.0, max(0.0, self._left.get(category, 0.0)) / whole) if whole > 0 else 1.0

    def claimed(self, category: str) -> Iterator[tuple[Cell | None, float]]:
        """Yield the seconds per step of a category that claims have, in cells, and in none where cells do not tell."""
        in_cells = 0.0
        for part in self._of[category]:
            if part.by:
                yield part.cell, sum(part.by.values())
                in_cells += sum(part.by.values())
        yield None, max(0.0, sum(self._by.get(category, {}).values()) - in_cells)

    def remainder(self, claim: Claim, wants: Iterable[Want]) -> Claim:
        """Return a claim about what other claims left of it."""
        costs = {
            want.category: claim.costs[want.category].part(min(1.0, self.left(want) / want.seconds))
            for want in wants
            if want.seconds > 0
        }
        return replace(claim, costs=costs)

    def rival(self, claim: Claim, wants: Sequence[Want]) -> str:
        """Return the rule whose claim has most of the same time; empty where most of it is left."""
        lost = dict[str, float]()
        for want in wants:
            for part, amount in want.parts:
                taken = max(0.0, amount - part.left)
                for name, seconds in part.by.items():
                    lost[name] = lost.get(name, 0.0) + taken * seconds / sum(part.by.values())
            missing = want.rest - max(0.0, self._left.get(want.category, 0.0))
            if missing > 0 and (by := self._by.get(want.category)):
                name = max(by, key=lambda each: by[each])
                lost[name] = lost.get(name, 0.0) + missing
        total = total_seconds(claim.costs)
        if not total or not lost or sum(map(self.left, wants)) >= MOST * total:
            return ""
        return max(lost, key=lambda name: lost[name])

    def lines(self, wants: Iterable[Want], *, left: bool) -> Lines:
        """Return the lines of a claim.

        :param left: leave out what other claims have.
        """
        lines = Lines()
        for want in wants:
            for part, amount in want.parts:
                lines.add(part.cell, min(amount, part.left) if left else amount)
        return lines

    def take(self, name: str, wants: Iterable[Want]) -> None:
        """Give the claim of a rule what is left of its cells."""
        for want in wants:
            amount = self.left(want)
            self._left[want.category] = self._left.get(want.category, 0.0) - amount
            by = self._by.setdefault(want.category, {})
            by[name] = by.get(name, 0.0) + amount
            for part, wanted in want.parts:
                taken = min(wanted, part.left, amount)
                if taken > 0:
                    part.left -= taken
                    part.by[name] = part.by.get(name, 0.0) + taken
                    amount -= taken
            if amount > _LEAST * want.seconds:
                self._unplaced.setdefault(want.category, {})[name] = amount * self._steps

    def ledger(self, of_periods: Mapping[Period, str]) -> Ledger | None:
        """Return the ledger with the rules whose findings have its cells.

        :param of_periods: a period -> the rule whose finding is about all of it.
        """
        if self._ledger is None:
            return None
        by = {
            id(cell): {of_periods[cell.period]: cell.seconds}
            for cell in self._ledger.cells
            if cell.period in of_periods
        }
        unplaced = dict[str, Mapping[str, float]]()
        for part in self.parts:
            by[id(part.cell)] = {name: seconds * self._steps for name, seconds in part.by.items()}
            if part.category in self._unplaced and part.cell.kind not in (GARBAGE_KIND, IMPORT_KIND):
                unplaced[part.cell.kind] = self._unplaced[part.category]
        cells = (replace(cell, findings=by.get(id(cell), {})) for cell in self._ledger.cells)
        return replace(self._ledger, cells=tuple(cells), unplaced=unplaced)


class Rest(StepCosts):
    """What claims left of a step; thresholds stay shares of all of it."""

    def __init__(self, board: Board) -> None:
        super().__init__(board.costs.analysis)
        self._board = board

    def cost(self, category: str) -> Cost:
        return super().cost(category).part(self._board.share_left(category))

    @property
    def active(self) -> float:
        return self._board.costs.active

    @cached_property
    def core_wait_factor(self) -> float:
        return self._board.costs.core_wait_factor

    @property
    def collecting(self) -> float:
        parts = [part for part in self._board.parts if part.cell.kind == GARBAGE_KIND]
        whole = sum(part.seconds for part in parts)
        return super().collecting * (sum(part.left for part in parts) / whole if whole else 1.0)

    @property
    def blocked(self) -> float | None:
        whole = super().blocked
        return None if whole is None else whole * self._board.share_left("waiting")

    @cached_property
    def cells(self) -> Sequence[tuple[str, float, Cell]]:
        return [(part.category, part.left, part.cell) for part in self._board.parts]

    @cached_property
    def lines(self) -> Sequence[LineCost]:
        left = defaultdict[tuple[tuple[str, int], str], list[float]](lambda: [0.0, 0.0])
        for part in self._board.parts:
            if part.cell.place is not None:
                sums = left[part.cell.place.place, part.category]
                sums[0] += part.left
                sums[1] += part.seconds
        lines = []
        for line in self.analysis.lines:
            parts = {name: left.get((line.site.place, name), (1.0, 1.0)) for name in line.categories}
            categories = {
                name: seconds * parts[name][0] / parts[name][1] if parts[name][1] else seconds
                for name, seconds in line.categories.items()
            }
            lost = sum(line.categories.values()) - sum(categories.values())
            lines.append(replace(line, categories=categories, seconds_per_step=line.seconds_per_step - lost))
        return lines
