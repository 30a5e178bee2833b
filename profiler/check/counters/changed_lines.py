"""What became of the lines of code at which something is counted."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from profiler.check.counters.file_changes import FileChange
from profiler.check.counters.moved_lines import (
    LinePair,
    Payment,
    SourceLine,
    above,
    changed_pairs,
    equal_payments,
    is_equal,
    paid,
    pair_lines,
)
from profiler.check.model import Change, ChangeKind, Counted, Location
from profiler.core.metrics import ONCE, STARTUP

_OPERATORS: Final = "operators"
_WAITS: Final = ("syncs", "would_sync", "might_sync")
"""Counters of which it matters when in a step they are counted."""


def scaled_amounts(
    events: str,
    amounts: str,
    base: Sequence[Counted],
    candidate: Sequence[Counted],
    files: Sequence[FileChange] = (),
) -> float | None:
    """The factor by which the amounts of all lines grew or shrank, if the lines and their numbers of events stayed the
    same; None if there is no such factor. Batches of another size have one for copies to the device.

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
    amounts: Mapping[SourceLine, Sequence[float]], end: Callable[[Sequence[float]], float]
) -> dict[SourceLine, float]:
    """The least or the most of all processes at each line."""
    return {line: end(values) for line, values in amounts.items()}


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
    counter: str, side: Sequence[Counted], workers: bool = False, *, is_exact: bool = False
) -> dict[SourceLine, list[float]]:
    """Each line with its amount per step in every process.

    :param is_exact: whether the operators of a line, and its waits in several stages of a step, are lines of their own.
    """
    amounts: dict[SourceLine, list[float]] = defaultdict(lambda: [0.0] * len(side))
    for index, process in enumerate(side):
        for key, lines in (process.worker_lines if workers else process.lines).items():
            place = Location(*key)
            if place.counter != counter:
                continue
            operation = place.operation if is_exact or not counter.endswith(_OPERATORS) else ""
            stage = place.stage if is_exact else ""
            for number, amount, text in lines:
                line = SourceLine(place.file, number, operation, text, place.function, stage)
                amounts[line][index] += amount / process.steps
    return dict(sorted(amounts.items()))


def _operator_payments(
    pairs: Sequence[LinePair], before: Mapping[SourceLine, float], after: Mapping[SourceLine, float]
) -> Iterator[Payment]:
    """What is gone pays for what is new where the program executes as many operators of each name as before.

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
