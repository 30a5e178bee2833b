"""The window that torch's profiler traced, held to a size that a timeline can show: the longest slices stay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.core import units
from profiler.run.model import Run, Table, Traced

MOST: Final = 200_000
"""Slices of a kind: of three kinds 1.2 million events, some 150 MB of JSON, all of which a browser has to hold."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Slices of one kind that a timeline has no room for: the shortest ones."""

    what: str
    kept: int
    all: int
    longest_ns: int
    """Of those that are left out."""

    def words(self) -> str:
        """`3,455 of 3,655 torch operators, the shortest: none took more than 9.68 µs`."""
        longest = units.seconds(self.longest_ns / 1e9)
        return f"{self.all - self.kept:,} of {self.all:,} {self.what}, the shortest: none took more than {longest}"


def held(run: Run, traced: Traced, most: int) -> tuple[Run, Traced, tuple[LeftOut, ...]]:
    """`run` and `traced` with no more than `most` operators, calls and device activities of the trace each.

    What holds an operator is at least as long: it stays with everything around it.
    """
    pids = list(traced.pids)
    calls = np.isin(run.calls["pid"], pids) & (run.calls["correlation"] != 0)
    everything = np.ones(len(traced.operators), np.bool_)
    operators, first = _longest(traced.operators, everything, "torch operators", most)
    kept_calls, second = _longest(run.calls, calls, "runtime calls of torch's trace", most)
    on_device = np.isin(run.activities["pid"], pids)
    activities, third = _longest(run.activities, on_device, "device activities of torch's trace", most)
    left = tuple(one for one in (first, second, third) if one)
    return replace(run, calls=kept_calls, activities=activities), replace(traced, operators=operators), left


def _longest(table: Table, limited: npt.NDArray[np.bool_], what: str, most: int) -> tuple[Table, LeftOut | None]:
    """`table` without the shortest of its `limited` rows, in the order that it had."""
    places = np.flatnonzero(limited)
    if len(places) <= most:
        return table, None
    took = (table["end"] - table["begin"])[places]
    falling = np.lexsort((table["begin"][places], -took))
    keep = ~limited
    keep[places[falling[:most]]] = True
    return table[keep], LeftOut(what, most, len(places), int(took[falling[most]]))
