"""Tells which line of the base each line was, and what became of the counts there."""

from __future__ import annotations

import difflib
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from profiler.check.diff import FileChange
from profiler.check.model import Change, ChangeKind, Counted, CountedLine
from profiler.core.metrics import ONCE, STARTUP

_MAX_EDIT: Final = 8
"""Lines that a diff replaces by others, up to which what they count is that of one edited place. Where more are
replaced, each of them is compared by its text."""
_MAX_PAYERS: Final = 10
"""Lines up to which all sets of them are tried: 1,023. Of more lines, one pays or all do."""
_REL_TOL: Final = 1e-12
"""For amounts that went through a division; one byte among terabytes is a difference."""
_ABS_TOL: Final = 1e-9
_SIMILAR: Final = 0.7
"""Ratio of equal letters (difflib) from which two texts are one edited line: `total += loss.item()` and
`total = loss.item()` have 0.97, `total += loss.item()` and `norm = grads.item()` have 0.62."""


@dataclass(frozen=True, slots=True)
class LinePair:
    """A line of the candidate and what it was; one of them is None where the line is new, or gone."""

    base: CountedLine | None
    candidate: CountedLine | None
    before: float
    """What the line of the base counted, as far as it belongs to this line."""
    after: float


Payment = tuple[LinePair, LinePair, float]
"""A pair whose amount fell, one whose amount rose, and how much of this is the same work at another line."""

_TEXTS: Final[tuple[Callable[[CountedLine], Hashable], ...]] = (
    lambda line: (line.file, line.number, line.function, line.operation, line.stage, line.text),
    lambda line: line.text and (line.file, line.function, line.operation, line.stage, line.text),
    lambda line: line.text and (line.file, line.operation, line.stage, line.text),  # in a function of another name
    lambda line: line.text and (line.operation, line.stage, line.text),  # in another file
)
"""Identities of a line by its text, the most reliable first; empty: not applicable."""


def above(amount: float, limit: float) -> bool:
    """Return whether an amount is more than another one, and not equal to it but for rounding."""
    return amount > limit and not math.isclose(amount, limit, rel_tol=_REL_TOL, abs_tol=_ABS_TOL)


def is_equal(first: float, second: float) -> bool:
    """Return whether two amounts are equal but for rounding."""
    return math.isclose(first, second, rel_tol=_REL_TOL, abs_tol=_ABS_TOL)


def pair_lines(
    before: Mapping[CountedLine, float],
    after: Mapping[CountedLine, float],
    changes: Sequence[FileChange] = (),
    *,
    most: float = _MAX_EDIT,
) -> Iterator[LinePair]:
    """Yield all lines of both sides; the amounts of an edited place are shared by its lines.

    :param most: lines up to which a place that the diff replaced is one edited place.
    """
    matching = _Matching(before, after)
    matching.by_diff(changes)
    for identity in _TEXTS:
        matching.by_identity(identity)
    yield from matching.pairs
    yield from matching.edited(changes, most)
    matching.pairs.clear()
    matching.by_similar_text(changes)
    yield from matching.pairs
    yield from (LinePair(line, None, before[line], 0.0) for line in matching.base)
    yield from (LinePair(None, line, 0.0, after[line]) for line in matching.candidate)


class _Matching:
    """The lines of both sides that have no counterpart yet."""

    def __init__(self, before: Mapping[CountedLine, float], after: Mapping[CountedLine, float]) -> None:
        self._before, self._after = before, after
        self.base, self.candidate = dict.fromkeys(sorted(before)), dict.fromkeys(sorted(after))
        self.pairs: list[LinePair] = []

    def _pair(self, base: CountedLine, candidate: CountedLine) -> None:
        if base in self.base and candidate in self.candidate:
            del self.base[base], self.candidate[candidate]
            self.pairs.append(LinePair(base, candidate, self._before[base], self._after[candidate]))

    def by_diff(self, changes: Sequence[FileChange]) -> None:
        """Pair lines that a diff leaves as they were."""
        files = {change.candidate: change for change in changes}
        places = {(line.file, line.number, line.operation, line.stage): line for line in self.base}
        for line in list(self.candidate):
            change = files.get(line.file)
            number = change.same.get(line.number) if change is not None else None
            if change is not None and number is not None:
                base = places.get((change.base, number, line.operation, line.stage))
                if base is not None:
                    self._pair(base, line)

    def by_identity(self, identity: Callable[[CountedLine], Hashable]) -> None:
        """Pair lines with an equal identity, the nearest first where several are alike."""
        lines: dict[Hashable, list[CountedLine]] = defaultdict(list)
        for line in self.base:
            lines[identity(line)].append(line)
        pairs = [(base, line) for line in self.candidate if (key := identity(line)) for base in lines.get(key, ())]
        for base, line in sorted(pairs, key=lambda pair: (abs(pair[0].number - pair[1].number), pair[1].number)):
            self._pair(base, line)

    def edited(self, changes: Sequence[FileChange], most: float) -> Iterator[LinePair]:
        """Yield lines that a diff replaced by others: what the place counted before pays for what it counts now."""
        for change in changes:
            for old, new in change.replaced:
                if max(len(old), len(new)) > most:
                    continue
                base = [line for line in self.base if line.file == change.base and line.number in old]
                candidate = [line for line in self.candidate if line.file == change.candidate and line.number in new]
                if base and candidate:
                    for line in base:
                        del self.base[line]
                    for line in candidate:
                        del self.candidate[line]
                    yield from self._shared(base, candidate)

    def _shared(self, base: Sequence[CountedLine], candidate: Sequence[CountedLine]) -> Iterator[LinePair]:
        """Yield the amounts of an edited place, given to its lines in the order in which they resemble the former
        ones."""
        left = {line: self._before[line] for line in base}
        pairs = [(_ratio(old.text, new.text), old, new) for new in candidate for old in base if old.may_become(new)]
        wanted = {line: self._after[line] for line in candidate}
        given: dict[CountedLine, tuple[CountedLine, float]] = {}
        for _, old, new in sorted(pairs, key=lambda pair: (-pair[0], pair[2].number, pair[1].number)):
            amount = min(left[old], wanted[new])
            if amount:
                left[old] -= amount
                wanted[new] -= amount
                given[new] = given.get(new, (old, 0.0))[0], given.get(new, (old, 0.0))[1] + amount
        for line in candidate:
            origin, amount = given.get(line, (None, 0.0))
            yield LinePair(origin, line, amount, self._after[line])
        yield from (LinePair(line, None, amount, 0.0) for line, amount in left.items() if amount)

    def by_similar_text(self, changes: Sequence[FileChange]) -> None:
        """Pair lines of one function whose texts are similar, or unknown; where the diff is known, only those that it
        replaced by each other."""
        groups = [(change, *group) for change in changes for group in change.replaced]
        old = {(change.base, number): group for group, (change, lines, _) in enumerate(groups) for number in lines}
        new = {(change.candidate, number): group for group, (change, _, lines) in enumerate(groups) for number in lines}
        known = {change.candidate for change in changes}
        lines: dict[Hashable, list[CountedLine]] = defaultdict(list)
        for line in self.base:
            lines[line.file, line.function, line.operation, line.stage].append(line)
        pairs = []
        for line in self.candidate:
            for base in lines[line.file, line.function, line.operation, line.stage]:
                group = old.get((base.file, base.number))
                if line.file in known and (group is None or group != new.get((line.file, line.number))):
                    continue
                ratio = _ratio(base.text, line.text)
                if ratio >= _SIMILAR:
                    pairs.append((-ratio, abs(base.number - line.number), base, line))
        for *_, base, line in sorted(pairs):
            self._pair(base, line)


def paid(pairs: Sequence[LinePair], payments: Iterable[Payment]) -> Iterator[LinePair]:
    """Yield the pairs, of which what is paid only moved."""
    taken: dict[LinePair, float] = defaultdict(float)
    for fallen, risen, amount in payments:
        yield LinePair(fallen.base, risen.candidate, amount, amount)
        taken[fallen] += amount
        taken[risen] += amount
    for pair in pairs:
        fell = pair.before > pair.after
        before, after = pair.before - fell * taken[pair], pair.after - (not fell) * taken[pair]
        if above(before + after, 0.0):
            yield LinePair(pair.base, pair.candidate, before, after)


def changed_pairs(pairs: Iterable[LinePair]) -> tuple[list[LinePair], list[LinePair]]:
    """Return the pairs with a lower amount, and the pairs with a higher one."""
    pairs = list(pairs)
    fallen = [pair for pair in pairs if pair.base and above(pair.before, pair.after)]
    return fallen, [pair for pair in pairs if pair.candidate and above(pair.after, pair.before)]


def equal_payments(pairs: Sequence[LinePair]) -> Iterator[Payment]:
    """Pay for what is new by what is gone, where the same operation is called as often, and not earlier in a step.

    One line may pay for several lines, and several for one, as where a helper is shared. Their amounts are equal: a
    wait of each epoch does not pay for one of each step.
    """
    fallen, risen = changed_pairs(pairs)
    for ones, others in ((risen, fallen), (fallen, risen)):
        for one in sorted(ones, key=lambda pair: -abs(pair.after - pair.before)):
            for other in (payers := _payers(one, others)):
                others.remove(other)
                yield *((other, one) if ones is risen else (one, other)), abs(other.after - other.before)
            if payers:
                ones.remove(one)


def _payers(one: LinePair, others: Sequence[LinePair]) -> Sequence[LinePair]:
    """Return the fewest of the other pairs that together fell as much as this one rose, or rose as much as it fell."""
    change = one.before - one.after
    chosen = []
    for other in others:
        old, new = (other.base, one.candidate) if change < 0 else (one.base, other.candidate)
        is_same_call = old is not None and new is not None and old.operation == new.operation and old.may_become(new)
        if is_same_call and not above(abs(other.after - other.before), abs(change)):
            chosen.append(other)
    for number in range(1, len(chosen) + 1) if len(chosen) <= _MAX_PAYERS else (1, len(chosen)):
        for payers in combinations(chosen, number):
            if is_equal(sum(other.after - other.before for other in payers), change):
                return payers
    return ()


def _ratio(first: str, second: str) -> float:
    """Return similarity of two texts; 1 where one of them is not known."""
    if not first or not second:
        return 1.0
    return difflib.SequenceMatcher(None, first, second, autojunk=False).ratio()


# ---------------------------------------------------------------- what became of the counts

_OPERATORS: Final = "operators"
_WAITS: Final = ("syncs", "might_sync")
"""Counters of which it matters when in a step they are counted."""


def scaled_amounts(
    events: str,
    amounts: str,
    base: Sequence[Counted],
    candidate: Sequence[Counted],
    files: Sequence[FileChange] = (),
) -> float | None:
    """Return the factor by which the amounts of all lines grew or shrank, if the lines and their numbers of events
    stayed the same; None if there is no such factor. Batches of another size have one for copies to the device.

    :param files: as for `changed_lines`.
    """
    before, after = (ends(amounts_by_line(events, side), min) for side in (base, candidate))
    sizes = [ends(amounts_by_line(amounts, side), min) for side in (base, candidate)]
    pairs = list(pair_lines(before, after, files))
    if any(pair.base is None or pair.candidate is None or not is_equal(pair.before, pair.after) for pair in pairs):
        return None
    ratios = [
        sizes[1].get(pair.candidate, 0.0) / size
        for pair in pairs
        if pair.base and pair.candidate and (size := sizes[0].get(pair.base))
    ]
    if not ratios or any(not is_equal(ratio, ratios[0]) for ratio in ratios) or is_equal(ratios[0], 1.0):
        return None
    return ratios[0]


def ends(
    amounts: Mapping[CountedLine, Sequence[float]], end: Callable[[Sequence[float]], float]
) -> dict[CountedLine, float]:
    """Return the least or the most of all processes at each line."""
    return {line: end(values) for line, values in amounts.items()}


def changed_lines(
    counter: str,
    base: Sequence[Counted],
    candidate: Sequence[Counted],
    files: Sequence[FileChange] = (),
    *,
    workers: bool = False,
) -> tuple[Change, ...]:
    """Return what became of the lines at which a counter was counted, per step: new lines first, then those at which it
    rose, the largest rise first. A new line that calls a function makes old lines there count more.

    A line rose if every process of the candidate counted more there than any of the base, and fell if every process
    counted less.

    :param files: what became of files whose former text is known.
    """
    has_operators, has_stages = counter.endswith(_OPERATORS), counter == _WAITS[0]
    exact = [
        amounts_by_line(counter, side, workers, is_exact=True)
        for side in (base, candidate)
        if has_operators or has_stages
    ]
    is_staged = has_stages and all(line.stage for side in exact for line in side)
    before, after = exact if is_staged else (amounts_by_line(counter, side, workers) for side in (base, candidate))
    has_lines = before or not any(process.totals.get(counter) for process in base)
    if counter.startswith((STARTUP, ONCE)) and not has_lines:  # a baseline file has no lines of these
        return ()
    # one operator may do what many did: what replaces them is judged by their number, however many lines they took
    most = {"most": math.inf} if has_operators else {}
    pairs = list(pair_lines(ends(before, max), ends(after, min), files, **most))
    if has_operators:
        pairs = list(paid(pairs, _operator_payments(pairs, ends(exact[0], max), ends(exact[1], min))))
    elif is_staged or counter not in _WAITS:
        pairs = list(paid(pairs, equal_payments(pairs)))
    changes = []
    for pair in pairs:
        change = change_of(pair)
        if pair.candidate is None or change.kind in (ChangeKind.SHRANK, ChangeKind.VANISHED):
            lowest = min(before[pair.base]) if pair.base else 0.0
            highest = max(after[pair.candidate]) if pair.candidate else 0.0
            if not above(min(lowest, pair.before), highest):
                continue
        moved = pair.base is not None and (change.file, change.line) != (change.base_file, change.base_line)
        if change.kind is not ChangeKind.MOVED or moved:
            changes.append(change)
    changes.sort(key=lambda each: (each.before - each.after, each.file, each.line, each.operation))
    return tuple(sorted(changes, key=lambda each: each.kind is not ChangeKind.APPEARED))  # keeps that order


def change_of(pair: LinePair) -> Change:
    """Return what became of a line."""
    line, base = pair.candidate or pair.base, pair.base
    assert line is not None, "a pair has a line"
    before = pair.after if is_equal(pair.before, pair.after) else pair.before
    now = line.counter, line.file, line.number, line.function, line.operation, before, pair.after, line.text, line.stage
    return Change(*now, base.file, base.number, base.function) if base else Change(*now)


def amounts_by_line(
    counter: str, side: Sequence[Counted], workers: bool = False, *, is_exact: bool = False
) -> dict[CountedLine, list[float]]:
    """Return each line with its amount per step in every process.

    :param is_exact: whether the operators of a line, and its waits in several stages of a step, are lines of their own.
    """
    amounts: dict[CountedLine, list[float]] = defaultdict(lambda: [0.0] * len(side))
    for index, process in enumerate(side):
        for line, amount in (process.worker_lines if workers else process.lines).items():
            if line.counter == counter:
                operation = "" if counter.endswith(_OPERATORS) else line.operation
                place = line if is_exact else line._replace(operation=operation, stage="")
                amounts[place][index] += amount / process.steps
    return dict(sorted(amounts.items()))


def _operator_payments(
    pairs: Sequence[LinePair], before: Mapping[CountedLine, float], after: Mapping[CountedLine, float]
) -> Iterator[Payment]:
    """Pay for what is new by what is gone, as far as the program executes as many operators of each name as before.

    :param before: the lines of the base, one for each operator.
    """
    if not all(line.operation for line in before):  # older files do not have their names
        return
    more: dict[str, float] = defaultdict(float)
    names: dict[tuple[str, int, str], set[str]] = defaultdict(set)
    for line, amount in before.items():
        more[line.operation] -= amount
    for line, amount in after.items():
        more[line.operation] += amount
        names[line.file, line.number, line.function].add(line.operation)
    fallen, risen = changed_pairs(pairs)
    left = {pair: pair.before - pair.after for pair in fallen}
    for pair in risen:
        assert pair.candidate is not None, "it rose"
        place = pair.candidate.file, pair.candidate.number, pair.candidate.function
        due = pair.after - pair.before - sum(max(0.0, more[name]) for name in names[place])
        for other, rest in left.items():
            amount = min(rest, due)
            if above(amount, 0.0):
                yield other, pair, amount
                left[other] = rest - amount
                due -= amount
