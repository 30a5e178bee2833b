"""What became of the lines of code at which something is counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from profiler.check.counters.file_changes import FileChange
from profiler.check.counters.moved_lines import LinePair, SourceLine, above, is_equal, pair_lines, settled
from profiler.check.model import Change, ChangeKind, Counted, Line, Location
from profiler.core.metrics import STARTUP

_OPERATORS: Final = "operators"
_WAITS: Final = ("syncs", "would_sync", "might_sync")
"""Counters of which it matters when in a step they are counted."""


def scaled_copies(
    base: Sequence[Counted], candidate: Sequence[Counted], files: Sequence[FileChange] = ()
) -> float | None:
    """The factor by which all copies to the device grew or shrank, if the lines that copy, and how often, stayed the
    same; None if there is no such factor. Batches of another size have one.

    :param files: as for `changed_lines`.
    """
    before, after = (least(amounts_by_line("h2d", side)) for side in (base, candidate))
    sizes = [least(amounts_by_line("h2d_bytes", side)) for side in (base, candidate)]
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


def least(amounts: Mapping[SourceLine, Sequence[float]]) -> dict[SourceLine, float]:
    """The amount of each line in the process that counted the least there."""
    return {line: min(values) for line, values in amounts.items()}


def changed_lines(
    counter: str,
    base: Sequence[Counted],
    candidate: Sequence[Counted],
    files: Sequence[FileChange] = (),
    *,
    workers: bool = False,
) -> tuple[Change, ...]:
    """What became of the lines at which a counter was counted, per step: new lines first, then those at which it rose,
    the largest rise first. A new line that calls a function makes old lines there count more.

    A line rose if every process of the candidate counted more there than any of the base, and fell if every process
    counted less.

    :param files: what became of files whose former text is known.
    """
    is_staged = counter == _WAITS[0] and all(
        place.stage for process in (*base, *candidate) for place, _ in _lines_of(counter, process)
    )
    before, after = (amounts_by_line(counter, side, workers, staged=is_staged) for side in (base, candidate))
    has_lines = before or not any(process.totals.get(counter) for process in base)
    if counter.startswith(STARTUP) and not has_lines:  # a baseline file has no lines of the start
        return ()
    most, fewest = (
        {line: end(amounts) for line, amounts in side.items()} for end, side in ((max, before), (min, after))
    )
    pairs: Iterable[LinePair] = pair_lines(most, fewest, files)
    if counter.endswith(_OPERATORS):
        pairs = _same_operators(pairs, _Operators(counter, base, candidate))
    elif is_staged or counter not in _WAITS:
        pairs = settled(pairs)
    changes = []
    for pair in pairs:
        change = change_of(counter, pair)
        if pair.candidate is None or change.kind in (ChangeKind.SHRANK, ChangeKind.VANISHED):
            lowest = min(before[pair.base]) if pair.base else 0.0
            highest = max(after[pair.candidate]) if pair.candidate else 0.0
            if not above(min(lowest, pair.before), highest):
                continue
        moved = pair.base is not None and (change.file, change.line) != (change.base_file, change.base_line)
        if change.kind is not ChangeKind.MOVED or moved:
            changes.append(change)
    return tuple(sorted(changes, key=_order))


def _order(change: Change) -> tuple[bool, float, str, int, str]:
    is_old = change.kind is not ChangeKind.APPEARED
    return is_old, change.before - change.after, change.file, change.line, change.operation


def change_of(counter: str, pair: LinePair) -> Change:
    """What became of a line of a counter."""
    line = pair.candidate or pair.base
    assert line is not None, "a pair has a line"
    same = is_equal(pair.before, pair.after)
    return Change(
        counter,
        line.file,
        line.number,
        line.function,
        line.operation,
        pair.after if same else pair.before,
        pair.after,
        line.text,
        line.stage,
        pair.base.file if pair.base else "",
        pair.base.number if pair.base else 0,
        pair.base.function if pair.base else "",
    )


def amounts_by_line(
    counter: str, side: Sequence[Counted], workers: bool = False, *, staged: bool = False
) -> dict[SourceLine, list[float]]:
    """Each line with its amount per step in every process. Operators of one line count together, as one may replace
    another.

    :param staged: whether waits in several stages of a step are lines of their own.
    """
    amounts: dict[SourceLine, list[float]] = defaultdict(lambda: [0.0] * len(side))
    for index, process in enumerate(side):
        for place, lines in _lines_of(counter, process, workers=workers):
            operation = "" if counter.endswith(_OPERATORS) else place.operation
            for number, amount, text in lines:
                line = SourceLine(place.file, number, operation, text, place.function, place.stage if staged else "")
                amounts[line][index] += amount / process.steps
    return dict(sorted(amounts.items()))


def _lines_of(counter: str, process: Counted, *, workers: bool = False) -> Iterator[tuple[Location, tuple[Line, ...]]]:
    """The places at which a process counted something, and their lines."""
    lines = process.worker_lines if workers else process.lines
    return ((place, each) for key, each in lines.items() if (place := Location(*key)).counter == counter)


class _Operators:
    """How many of each operator the candidate executes more than the base, and which of them its lines execute."""

    def __init__(self, counter: str, base: Sequence[Counted], candidate: Sequence[Counted]) -> None:
        self.are_known = all(place.operation for process in base for place, _ in _lines_of(counter, process))
        self._names: dict[tuple[str, int, str], set[str]] = defaultdict(set)
        totals: list[list[dict[str, float]]] = []
        for side in (base, candidate):
            totals.append([])
            for process in side:
                sums: dict[str, float] = defaultdict(float)
                for place, lines in _lines_of(counter, process):
                    for number, amount, _ in lines:
                        sums[place.operation] += amount / process.steps
                        self._names[place.file, number, place.function].add(place.operation)
                totals[-1].append(sums)
        before, after = totals
        self._more = {
            name: min(sums[name] for sums in after) - max(sums[name] for sums in before)
            for name in set().union(*before, *after)
        }

    def more_at(self, line: SourceLine) -> float:
        """How many more of the operators of a line of the candidate are executed in all of the program."""
        names = self._names[line.file, line.number, line.function]
        return sum(max(0.0, self._more[name]) for name in names)


def _same_operators(pairs: Iterable[LinePair], operators: _Operators) -> Iterator[LinePair]:
    """The pairs, of which what is new is paid by what is gone where the program executes as many operators of each name
    as before."""
    pairs = list(pairs)
    left = {pair: pair.before - pair.after for pair in pairs if pair.base and above(pair.before, pair.after)}
    for pair in pairs:
        line = pair.candidate
        if line is None or pair in left:
            continue
        more = pair.after - pair.before
        paid = max(0.0, more - operators.more_at(line)) if operators.are_known and above(more, 0.0) else 0.0
        rest = pair.after
        for other in left if paid else ():
            if amount := min(left[other], paid):
                yield LinePair(other.base, line, amount, amount)
                left[other] -= amount
                paid -= amount
                rest -= amount
        if pair.before or rest:
            yield LinePair(pair.base, line, pair.before, rest)
    for pair, amount in left.items():
        if amount or pair.after:
            yield LinePair(pair.base, pair.candidate, pair.after + amount, pair.after)
