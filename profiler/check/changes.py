"""Which lines a counter rose at: each line of the candidate is known again by what stands in it, or by its place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from profiler.check.model import Change, Counted

_LEAST: Final = 1e-9


@dataclass(frozen=True, slots=True)
class _Line:
    """What was counted at one line, in its whole side."""

    file: str
    function: str
    operation: str
    line: int
    text: str


_Known = Callable[[_Line], object]
_AGAIN: Final[tuple[_Known, ...]] = (
    lambda one: one,
    lambda one: one.text and (one.file, one.function, one.operation, one.text),
    lambda one: one.text and (one.file, one.operation, one.text),  # in a function of another name
    lambda one: one.text and (one.operation, one.text),  # in another file
    lambda one: (one.file, one.function, one.operation),  # its text was changed
)
"""By what a line is known again, the surest first; empty: it cannot be."""


def changes_of(
    counter: str, base: Sequence[Counted], candidate: Sequence[Counted], *, workers: bool = False
) -> tuple[Change, ...]:
    """Lines at which every process of the candidate counted more than any of the base did, per step, most first."""
    before, after = (list(_lines(counter, side, workers)) for side in (base, candidate))
    old = {line: max(amounts) for line, amounts in before}
    new = {line: min(amounts) for line, amounts in after}
    was = _known_again(list(old), list(new))
    found = []
    for line, amount in new.items():
        earlier = old[was[line]] if line in was else 0.0
        if amount - earlier > _LEAST * max(1.0, amount):
            found.append(Change(counter, line.file, line.line, line.function, line.operation, earlier, amount))
    return tuple(sorted(found, key=lambda one: (one.before - one.after, one.file, one.line, one.operation)))


def _lines(counter: str, side: Sequence[Counted], workers: bool) -> Iterator[tuple[_Line, list[float]]]:
    """Each line with its amount per step in every process."""
    found: dict[_Line, list[float]] = defaultdict(lambda: [0.0] * len(side))
    for number, one in enumerate(side):
        whole = one.worker_lines if workers else one.lines or _without_text(one)
        for (name, file, function, operation), lines in whole.items():
            for line, amount, text in lines if name == counter else ():
                found[_Line(file, function, operation, line, text)][number] += amount / one.steps
    yield from sorted(found.items(), key=lambda item: (item[0].file, item[0].line, item[0].operation, item[0].text))


def _without_text(one: Counted) -> dict[tuple[str, str, str, str], tuple[tuple[int, float, str], ...]]:
    return {key: ((line, amount, ""),) for key, (amount, line) in one.sites.items()}


def _known_again(old: Sequence[_Line], new: Sequence[_Line]) -> dict[_Line, _Line]:
    """Line of the candidate -> the line of the base that it was; in their order where several are alike."""
    found: dict[_Line, _Line] = {}
    left = list(old)
    for known in _AGAIN:
        places: dict[object, list[_Line]] = defaultdict(list)
        for line in left:
            places[known(line)].append(line)
        for line in new:
            again = known(line)
            if again and line not in found and places.get(again):
                found[line] = min(places[again], key=lambda one: abs(one.line - line.line))
                places[again].remove(found[line])
                left.remove(found[line])
    return found
