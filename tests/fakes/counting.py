"""Made-up counts of processes: short ways of writing `Counted`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from profiler.check.model import Counted, CountedLine

Lines = Mapping[CountedLine, float]


def one(
    steps: int = 20,
    *,
    workers: Mapping[str, float] | None = None,
    lines: Lines | None = None,
    growing: Collection[tuple[str, int]] = (),
    **totals: float,
) -> Counted:
    """A process; `totals` are amounts in all its steps."""
    return Counted(steps, totals, workers or {}, lines or {}, growing=frozenset(growing))


def two(**totals: float) -> tuple[Counted, Counted]:
    """Two processes that counted the same in 20 steps."""
    return one(**totals), one(**totals)


def at(
    line: int,
    amount: float,
    text: str = "",
    *,
    counter: str = "syncs",
    file: str = "train.py",
    function: str = "main",
    operation: str = "item",
) -> tuple[CountedLine, float]:
    """One line at which an operation was counted; for `lines_of`."""
    return CountedLine(counter, file, line, function, operation, text), amount


def lines_of(*lines: tuple[CountedLine, float]) -> Lines:
    found: dict[CountedLine, float] = defaultdict(float)
    for line, amount in lines:
        found[line] += amount
    return found
