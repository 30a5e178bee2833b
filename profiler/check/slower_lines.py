"""Finds the lines of the candidate that take longer than their counterparts in the base.

A diff tells which line of the base a line of the candidate is. Neighboring lines that the diff replaces are one place:
their old lines together are the counterpart of the new ones. Both sides are recorded one after the other, so their
times also differ by the load of the machine. So a line's time is its share of its own recording, times the time of a
step in the rounds, in which both sides ran in alternation.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from profiler.analyse.model import Analysis, LineCost
from profiler.analyse.statistics import share_interval
from profiler.check.counters.paths import portable_path
from profiler.check.model import Hunk, SlowerLine

MAX_LINES: Final = 5
LEAST: Final = 0.01
"""Share of a step of the base by which a place must take longer. The test of speed finds 2% to 5% in all."""
LEAST_OF_CHANGE: Final = 0.1
"""Share of the increase of a step that a place must make up: the same code takes some percent more or less from one
recording to the next, also where its share is recorded exactly."""


@dataclass(frozen=True, slots=True)
class LineTimes:
    """The time of one side by line, from its recording."""

    lines: Sequence[tuple[str, LineCost]]
    """File, as sites of the check name it, and cost: several for a line with comprehensions, which are functions."""
    step: float
    """Seconds of a step in the rounds."""

    @classmethod
    def of(cls, analysis: Analysis, folder: str, step: float) -> LineTimes:
        """:param folder: in which the side was started."""
        project = analysis.info.project or folder

        def name(file: str) -> str:
            return portable_path(os.path.normpath(f"{project}/{file}" if not file.startswith("/") else file), folder)

        return cls([(name(line.site.file), line) for line in analysis.lines], step)

    @property
    def samples(self) -> int:
        """Stack samples of all lines."""
        return sum(line.samples for _, line in self.lines)


class _Place(NamedTuple):
    """Lines that are compared with each other."""

    file: str
    line: int
    """Of the candidate; of a change the first one."""
    is_changed: bool
    """Whether the diff adds or removes them."""


@dataclass(slots=True)
class _Sum:
    """The share of a step of some lines, with the ends of its 95% interval."""

    share: float = 0.0
    below: float = 0.0
    above: float = 0.0
    largest: LineCost | None = None

    def add(self, line: LineCost) -> None:
        self.share += line.share
        self.below = math.hypot(self.below, line.share - line.low)
        self.above = math.hypot(self.above, line.high - line.share)
        if self.largest is None or line.share > self.largest.share:
            self.largest = line


def slower_lines(base: LineTimes, candidate: LineTimes, hunks: Sequence[Hunk]) -> tuple[SlowerLine, ...]:
    """The places of the candidate that take longer by more than chance, the largest increase first."""
    before, after = _sums(base, hunks, is_base=True), _sums(candidate, hunks, is_base=False)
    slower = []
    least = max(LEAST * base.step, LEAST_OF_CHANGE * (candidate.step - base.step))
    unseen = _Sum(above=share_interval(0.0, base.samples)[1])
    for place, now in after.items():
        then = before.get(place, unseen)
        increase = now.share * candidate.step - then.share * base.step
        is_sure = (now.share - now.below) * candidate.step > (then.share + then.above) * base.step
        if now.largest is not None and is_sure and increase >= least:
            site = now.largest.site
            slower.append(
                SlowerLine(
                    place.file,
                    site.line,
                    site.function,
                    then.share * base.step,
                    now.share * candidate.step,
                    place.is_changed,
                    site.source,
                )
            )
    slower.sort(key=lambda line: line.before - line.after)
    return tuple(slower[:MAX_LINES])


def _sums(times: LineTimes, hunks: Sequence[Hunk], *, is_base: bool) -> dict[_Place, _Sum]:
    changes = {file: _changes(group) for file, group in groupby(hunks, key=lambda hunk: hunk.file)}
    sums: dict[_Place, _Sum] = {}
    for file, cost in times.lines:
        place = _place(file, cost.site.line, changes.get(file, ()), is_base=is_base)
        sums.setdefault(place, _Sum()).add(cost)
    return sums


@dataclass(frozen=True, slots=True)
class _Change:
    """Lines that the diff replaces: the first line and the number of lines of both sides."""

    base: int
    removed: int
    line: int
    added: int


def _changes(hunks: Iterable[Hunk]) -> tuple[_Change, ...]:
    """The changes of one file in their order."""
    changes = []
    for hunk in hunks:
        base, line = hunk.base, hunk.line
        for is_context, lines in groupby(hunk.lines, key=lambda text: text.startswith(" ")):
            kinds = [text[0] for text in lines]
            removed, added = len(kinds) - kinds.count("+"), len(kinds) - kinds.count("-")
            if not is_context:
                changes.append(_Change(base, removed, line, added))
            base, line = base + removed, line + added
    return tuple(changes)


def _place(file: str, line: int, changes: Iterable[_Change], *, is_base: bool) -> _Place:
    """The place of a line of one side."""
    moved = 0
    for change in changes:
        first, count = (change.base, change.removed) if is_base else (change.line, change.added)
        if first <= line < first + count:
            return _Place(file, change.line, is_changed=True)
        if line >= first + count:
            moved += change.added - change.removed
    return _Place(file, line + moved * is_base, is_changed=False)
