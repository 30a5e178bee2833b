"""Operators, memory and collectives of a run that was counted, as counters with their lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from profiler.analyse.window import Window, process_rows
from profiler.check.model import Line, Location
from profiler.run.model import Run, Site, Table
from profiler.run.tables import CountKind

_MAX_TEXT: Final = 80
"""Characters of a line's text that a baseline stores: enough to recognise a line that has moved."""
PEAK: Final = "peak_bytes"
GROWTH: Final = "growth_bytes"
_COUNTERS: Final = (
    (CountKind.OPERATOR, "count", "operators"),
    (CountKind.FLOPS, "count", "flops"),
    (CountKind.ALLOCATION, "bytes", "allocated_bytes"),
    (CountKind.GROWTH, "bytes", GROWTH),
    (CountKind.PEAK, "bytes", PEAK),
    (CountKind.COLLECTIVE, "count", "collectives"),
    (CountKind.COLLECTIVE, "bytes", "collective_bytes"),
)
"""Kind and column of the table `counts` -> counter."""


@dataclass(frozen=True, slots=True)
class TableCounts:
    """Amounts in all measured steps, and the lines with their amounts."""

    totals: dict[str, float]
    lines: dict[Location, tuple[Line, ...]]


def counts_of_table(run: Run, window: Window, shown: Callable[[str], str]) -> TableCounts:
    """The counters of the table `counts` in the steps of a window.

    Growth is that of all steps together, and 0 where memory shrank. The peak is the highest of all steps, times their
    number, so that it is the same per step.

    :param shown: the name of a file as sites have it.
    """
    rows = process_rows(run.counts, window)
    rows = rows[window.step_rows(rows["time"]) >= 0]
    totals: dict[str, float] = {}
    sums: dict[Location, dict[tuple[int, str], float]] = defaultdict(lambda: defaultdict(float))
    for kind, column, counter in _COUNTERS:
        own = rows[rows["kind"] == kind]
        factor = 1
        if kind is CountKind.PEAK:
            own, factor = _highest_moment(own), len(window)
        totals[counter] = factor * max(0.0, float(own[column].sum()))
        keys, group = np.unique(own[["site", "name"]], return_inverse=True)
        amounts = np.bincount(group.ravel(), own[column], len(keys)).tolist()
        for (number, name), amount in zip(keys.tolist(), amounts, strict=True):
            if amount > 0:
                site = run.sites[number] if number >= 0 else Site("", 0, "")
                operation = run.names[name] if kind is CountKind.COLLECTIVE else ""  # one operator may replace another
                location = counter, shown(site.file), site.function, operation
                sums[location][site.line, stored_text(site.source)] += factor * amount
    lines = {
        location: tuple((line, amount, text) for (line, text), amount in sorted(each.items()))
        for location, each in sums.items()
    }
    return TableCounts(totals, lines)


def _highest_moment(rows: Table) -> Table:
    """The rows of the boundary before which most memory was in use."""
    moments, group = np.unique(rows["time"], return_inverse=True)
    if not len(moments):
        return rows
    highest: Table = rows[group.ravel() == np.argmax(np.bincount(group.ravel(), rows["bytes"]))]
    return highest


def stored_text(source: str) -> str:
    """The text of a line as a baseline stores it."""
    return " ".join(source.split())[:_MAX_TEXT]
