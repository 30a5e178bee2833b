"""Finds the lines at which counters rose or that take longer, and how the diff explains them."""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.host import LineCost
from profiler.analyse.statistics import share_interval
from profiler.check.counters.files import portable_path
from profiler.check.model import FAIL, Change, CounterLine, GateResult, Hunk, SlowerLine
from profiler.core.metrics import counter_period, counter_unit

_MANY: Final = 3
"""Unchanged lines from which on they are one rise. A choice."""
_NO_CODE: Final = ("import ", "from ", "def ", "class ", "@", "else", "try", "finally", '"', "'")
"""Lines that begin so do nothing by themselves in a step."""
_WORK: Final = ("operators", "flops")


@dataclass(frozen=True, slots=True)
class Rise:
    """A line that counts more, or many unchanged lines that do."""

    changes: tuple[Change, ...]
    """The changes of all counters at a line, the costliest counter first. Of many lines, the one that counts least is
    the first, of the function that has most of them."""
    is_written: bool = False
    """Whether the diff wrote the line."""
    lines: int = 1
    factors: tuple[float, float] = (1.0, 1.0)
    """Of many lines, how many times as much each counts: the least and the most."""

    @property
    def runs(self) -> int:
        """Return how often per step the first of many lines runs, which runs once in the base; 0: that is not certain.

        A line that counts 1 runs once. One that counts 2 and then 3 may run twice and then three times, or once with a
        backward pass and then once more without one.
        """
        first = self.changes[0]
        is_certain = self.lines > 1 and first.before == 1 and first.after.is_integer()
        return int(first.after) if is_certain and not counter_unit(first.counter) else 0


def failing(result: GateResult) -> list[CounterLine]:
    """Return the counters that fail, those that cost most first."""
    return sorted((line for line in result.counters if line.state == FAIL), key=_cost)


def _cost(line: CounterLine) -> tuple[bool, bool, bool, bool]:
    """Sort counters: waits, copies and other events of each step, operators, bytes; then other periods and workers."""
    counter = line.counter
    is_of_step = counter_period(counter) == "per step"
    return line.scope != "step", not is_of_step, bool(counter_unit(counter)), counter.endswith(_WORK)


def find_rises(lines: Iterable[CounterLine], hunks: Sequence[Hunk]) -> tuple[Rise, ...]:
    """Return the rises of these counters, in the order in which they are told.

    Where no diff is known, only lines that all count the same number of times as much are one rise.
    """
    ordered = sorted(lines, key=_cost)
    names = [line.counter for line in ordered]
    places: dict[tuple[str, str, int], list[Change]] = defaultdict(list)
    for line in ordered:
        for change in line.changes:
            places[line.scope, change.file, change.line].append(change)
    written = {(hunk.file, number) for hunk in hunks for number in hunk.written()}
    rises, many = list[Rise](), defaultdict[tuple[object, ...], list[list[Change]]](list)
    for (scope, file, number), changes in places.items():
        first, is_written = changes[0], (file, number) in written
        if is_written or not first.before or not math.isfinite(first.after):
            rises.append(Rise(tuple(changes), is_written))
        else:
            many[scope, *_cost(ordered[names.index(first.counter)])[1:]].append(changes)
    for group in many.values():
        rises += _unwritten(group, is_known=bool(hunks))

    def order(rise: Rise) -> tuple[bool, int, bool, float]:
        first = rise.changes[0]
        return not rise.is_written, names.index(first.counter), first.before > 0, first.before - first.after

    return tuple(sorted(rises, key=order))


def _unwritten(lines: Sequence[list[Change]], *, is_known: bool) -> Iterator[Rise]:
    """Yield the rises of unchanged lines: those with the factor of most of them are one, and so are the others.

    :param is_known: whether the diff is known, so that all of them are certainly unchanged.
    """
    equal: dict[str, list[list[Change]]] = defaultdict(list)
    for changes in lines:
        equal[f"{changes[0].after / changes[0].before:.9g}"].append(changes)
    others: list[list[Change]] = []
    for same in equal.values():
        if len(same) >= _MANY and (not is_known or 2 * len(same) > len(lines)):
            yield _together(same)
        else:
            others += same
    if is_known and len(others) >= _MANY:
        yield _together(others)
    else:
        yield from (Rise(tuple(changes)) for changes in others)


def _together(group: list[list[Change]]) -> Rise:
    """Return many unchanged lines as one rise."""
    functions = Counter((changes[0].file, changes[0].function) for changes in group)
    group.sort(key=lambda each: (-functions[each[0].file, each[0].function], each[0].before, -each[0].line))
    factors = [changes[0].after / changes[0].before for changes in group]
    return Rise(tuple(chain(*group)), lines=len(group), factors=(min(factors), max(factors)))


def is_code(line: str) -> bool:
    """Return whether a line has more than a comment, brackets or the head of a definition."""
    text = line.partition("#")[0].strip()
    return bool(text.strip("()[]{},:")) and not text.startswith(_NO_CODE)


def changed_places(hunks: Iterable[Hunk]) -> Iterator[tuple[str, int, str]]:
    """Yield file, number and text of the line that tells most about each hunk: one of code, with a call, that was
    added."""
    for hunk in hunks:
        lines = [(number, text[:1], text[1:].strip()) for number, text in hunk.numbered() if not text.startswith(" ")]
        code = [(sign != "+", not is_code(text), "(" not in text, number, text) for number, sign, text in lines]
        code = [each for each in code if each[-1] and not each[-1].startswith("#")]
        if code:
            yield hunk.file, *min(code)[3:]


# ---------------------------------------------------------------- lines that take longer

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
        """Take the times of a side that was started in a folder."""
        project = analysis.info.project or folder

        def name(file: str) -> str:
            return portable_path(os.path.normpath(f"{project}/{file}" if not file.startswith("/") else file), folder)

        return cls([(name(line.site.file), line) for line in analysis.lines], step)

    @property
    def samples(self) -> int:
        """Return stack samples of all lines."""
        return sum(line.samples for _, line in self.lines)


_Place = tuple[str, int, bool]
"""A file, a line and whether the diff has it: lines of one place are compared with each other. Of a line that the diff
changes, it is the first line of the change in the candidate."""


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
    """Return the places of the candidate that take longer by more than chance, the largest increase first."""
    changes = {file: list(_changes(group)) for file, group in groupby(hunks, key=lambda hunk: hunk.file)}
    before, after = _sums(base, changes, is_base=True), _sums(candidate, changes, is_base=False)
    slower = []
    least = max(LEAST * base.step, LEAST_OF_CHANGE * (candidate.step - base.step))
    unseen = _Sum(above=share_interval(0.0, base.samples)[1])
    for place, now in after.items():
        then = before.get(place, unseen)
        old, new = then.share * base.step, now.share * candidate.step
        is_sure = (now.share - now.below) * candidate.step > (then.share + then.above) * base.step
        if now.largest is not None and is_sure and new - old >= least:
            site, (file, _, is_changed) = now.largest.site, place
            slower.append(SlowerLine(file, site.line, site.function, old, new, is_changed, site.source))
    slower.sort(key=lambda line: line.before - line.after)
    return tuple(slower[:MAX_LINES])


_Change = tuple[int, int, int, int]
"""Lines that the diff replaces: the first line and the number of lines in the base, then those in the candidate."""


def _sums(times: LineTimes, changes: Mapping[str, Sequence[_Change]], *, is_base: bool) -> dict[_Place, _Sum]:
    """Add up the shares of each place of one side."""
    sums: dict[_Place, _Sum] = {}
    for file, cost in times.lines:
        line, moved = cost.site.line, 0
        place = None
        for base, removed, candidate, added in changes.get(file, ()):
            first, count = (base, removed) if is_base else (candidate, added)
            if first <= line < first + count:
                place = file, candidate, True
                break
            moved += (added - removed) * (line >= first + count)
        sums.setdefault(place or (file, line + moved * is_base, False), _Sum()).add(cost)
    return sums


def _changes(hunks: Iterable[Hunk]) -> Iterator[_Change]:
    """Return the changes of one file in their order."""
    for hunk in hunks:
        base, line = hunk.base, hunk.line
        for is_context, lines in groupby(hunk.lines, key=lambda text: text.startswith(" ")):
            kinds = [text[0] for text in lines]
            removed, added = len(kinds) - kinds.count("+"), len(kinds) - kinds.count("-")
            if not is_context:
                yield base, removed, line, added
            base, line = base + removed, line + added
