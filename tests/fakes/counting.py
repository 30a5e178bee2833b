"""Made-up counts of processes: short ways of writing `Counted`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from profiler.check.model import Counted

Key = tuple[str, str, str, str]
Lines = Mapping[Key, tuple[tuple[int, float, str], ...]]


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
    counter: str = "would_sync",
    file: str = "train.py",
    function: str = "main",
) -> tuple[Key, tuple[int, float, str]]:
    """One line at which `.item()` was counted; for `lines_of`."""
    return (counter, file, function, "item"), (line, amount, text)


def lines_of(*lines: tuple[Key, tuple[int, float, str]]) -> dict[Key, tuple[tuple[int, float, str], ...]]:
    found: dict[Key, tuple[tuple[int, float, str], ...]] = {}
    for key, line in lines:
        found[key] = (*found.get(key, ()), line)
    return found
