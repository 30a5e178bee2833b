"""How far shares of samples may be off in a program of long phases: by blocks of time, as samples in a row are alike.

A thousand samples of one evaluation are one evaluation. So shares are compared between neighbouring stretches of time
(batch means): what they differ by, as far as samples did not see all of the time, adds to the error of each sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.stats import student_t
from profiler.analyse.timeline import Intervals, Times, covered_within, times
from profiler.analyse.window import Window

Floats = npt.NDArray[np.float64]

MOST: Final = 20
"""Blocks of time: enough for a variance, and few enough to be longer than most phases."""
FEWEST: Final = 4
"""Blocks below which their variance says nothing."""
_NORMAL: Final = 1.96
_TRIED: Final = 101


@dataclass(frozen=True, eq=False, slots=True)
class Blocks:
    """The ns that each row of samples stands for in each block of time (rows x blocks)."""

    ns: Floats
    unseen: float
    """Share of the measured time that no sample stands for: only what was not seen may have been otherwise."""

    def count(self, rows: npt.NDArray[np.bool_], values: Floats, n: float) -> float:
        """As how many independent samples those of `rows` count, for the mean of `values`, one a row, over them.

        :param values: of each of `rows` between 0 and 1.
        :param n: how many samples the rows are; the result is never more.
        """
        own = self.ns[rows]
        return effective(values @ own, own.sum(axis=0), n, self.unseen)

    def by(self, number: npt.ArrayLike) -> Floats:
        """The ns of the rows of each number in each block (numbers x blocks)."""
        numbers = times(number)
        sums = np.zeros((int(numbers.max(initial=-1)) + 1, self.ns.shape[1]))
        np.add.at(sums, numbers, self.ns)
        return sums


def block_edges(window: Window, windows: Intervals) -> Times:
    """Where blocks of the measured time meet. Each holds half a window of the GIL's holder and the samples beside it.

    :param windows: of the GIL's holder; with one or none the blocks are of one length.
    """
    first, last = int(window.begin[0]), int(window.end[-1])
    if 2 * len(windows) < FEWEST:
        return times(np.linspace(first, last, MOST + 1)[1:-1])
    edges = np.empty(2 * len(windows) - 1, np.int64)
    edges[::2] = (windows.begin + windows.end) // 2
    edges[1::2] = (windows.end[:-1] + windows.begin[1:]) // 2
    size = -(-2 * len(windows) // MOST)
    return edges[size - 1 :: size]


def in_blocks(edges: Times, moments: npt.ArrayLike, ns: npt.ArrayLike, row: npt.ArrayLike | None = None) -> Floats:
    """The ns of samples in each block (rows x blocks), or without `row` the ns of all in each."""
    block, count = np.searchsorted(edges, times(moments), "right"), len(edges) + 1
    if row is None:
        return np.bincount(block, ns, minlength=count).astype(np.float64)
    rows = times(row)
    sums = np.bincount(rows * count + block, ns, minlength=(int(rows.max(initial=-1)) + 1) * count)
    return sums.astype(np.float64).reshape(-1, count)


def blocks(window: Window, edges: Times, moments: npt.ArrayLike, ns: Floats, row: npt.ArrayLike) -> Blocks:
    """The blocks of samples that began at `moments` and stand for `ns` each, by `row`."""
    return Blocks(in_blocks(edges, moments, ns, row), max(0.0, 1.0 - float(ns.sum()) / window.wall_ns))


def effective(part: Floats, whole: Floats, n: float, unseen: float = 1.0) -> float:
    """As how many independent samples `n` samples count, of which `part` of `whole` ns in each block are of a kind.

    Blocks may be shorter than the program's phases, so ever longer ones are tried, and the largest variance counts.
    """
    total = float(whole.sum())
    share = float(part.sum()) / total if total else 0.0
    if not 0 < share < 1 or not n:
        return n
    variance = unseen * _scaled_variance(part - share * whole) / total**2
    return share * (1 - share) / (share * (1 - share) / n + variance)


def ratio_ends(part: Floats, whole: Floats) -> tuple[float, float] | None:
    """The 95% interval of a ratio up to 1 from pairs of neighbouring shares; None: too few of them to tell.

    All ratios that the pairs do not speak against (Fieller): symmetric ends would miss where few blocks have any.
    """
    if len(part) < FEWEST or not whole.sum():
        return None
    held = [float(part.sum() / whole.sum())]
    for ratio in np.linspace(0.0, 1.0, _TRIED):
        rest = part - ratio * whole
        if abs(float(rest.sum())) <= _NORMAL * math.sqrt(_scaled_variance(rest)):
            held.append(float(ratio))
    return min(held), max(held)


def _scaled_variance(rest: Floats) -> float:
    """Variance of the sum of what blocks differ by; scaled so that 1.96 of it are a 95% interval though few tell it."""
    most = 0.0
    while len(rest) >= FEWEST:
        count, apart = len(rest), rest - rest.mean()
        scale = student_t(count - 1) / _NORMAL
        most = max(most, scale**2 * count / (count - 1) * float((apart**2).sum()))
        rest = np.add.reduceat(rest, np.arange(0, count, 2))
    return most


def looked_in(edges: Times, intervals: Intervals) -> Floats:
    """How many ns of the intervals lie in each block."""
    low, high = np.iinfo(np.int64).min // 2, np.iinfo(np.int64).max // 2
    ends = np.concatenate([[low], edges, [high]])
    return covered_within(intervals, ends[:-1], ends[1:]).astype(np.float64)
