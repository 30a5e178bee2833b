"""Finds change points of a noisy series by a rank test at every position, in intervals of every length.

The statistic of a position is the standardised rank sum of the values before it within an interval (Mann-Whitney), as
in Hawkins and Deng, "A Nonparametric Change-Point Control Chart", Journal of Quality Technology 42 (2010). Seeded
binary segmentation gives the intervals (Kovacs, Buhlmann, Li and Munk, Biometrika 110, 2023). The shortest interval
that shows a change is taken, so that a rise that was soon reverted is found too (Baranowski, Chen and Fryzlewicz,
"Narrowest-over-threshold detection", JRSS B 81, 2019). Significance comes from permutations of the series, by the
largest statistic over all intervals and positions: no distribution is assumed. Neighbouring results of one machine are
correlated. So a statistic is divided by the factor by which a first-order autocorrelation within its interval raises
the standard error of a mean, sqrt((1+r)/(1-r)) (Bartlett, Journal of the Royal Statistical Society, Supplement 8,
1946).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

MIN_RESULTS: Final = 5
"""Results on each side of a change: of fewer, no order is rare enough."""
ALPHA: Final = 0.002
"""Share of series without a change in which one is found, were the values independent."""
_PERMUTATIONS: Final = 999
_MANY_RESULTS: Final = 300
"""With at least this many results only half of the permutations and of the lengths of intervals are used: 3,000 results
take 3 s."""
_CHUNK: Final = 200_000
"""Numbers that are permuted at once: 1.6 MB."""
_SHRINK: Final = 2**-0.5
"""Ratio of each length of intervals to the one before, as in the paper."""
_SCREEN: Final = (1.9, 0.33)
"""a, b: no statistic below a + b ln n is significant, so no permutations need to be drawn. Fitted below the
quantiles of 14 to 3,000 results."""
_ROUNDING: Final = 1e-12
"""Variance of ranks that are all equal except for rounding."""
_MAX_CORRELATION: Final = 0.9
"""Largest autocorrelation: a larger estimate from one interval is meaningless."""
_SEEN_TWICE: Final = 2

Floats = NDArray[np.float64]
Ends = tuple[float, float]
"""The lowest and the highest of some values."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A new level."""

    at: int
    """Index of the first value of the new level."""
    before: float
    """Median of the level before."""
    after: float
    p: float | None
    """Share of the permutations that look at least as much like a change; None: the change is exact."""


def level_shifts(values: Floats, *, smallest: float = 0.0) -> tuple[Shift, ...]:
    """Changes of the level of `values`, in order; the same values give the same changes.

    :param smallest: changes of the median by less than this are left out.
    """
    values = np.asarray(values, dtype=np.float64)
    shifts = sorted(_split(values, 0))
    while shifts:
        levels = [float(np.median(values[a:b])) for a, b in pairwise([0, *(at for at, _ in shifts), len(values)])]
        steps = [abs(after - before) for before, after in pairwise(levels)]
        weakest = min(range(len(steps)), key=steps.__getitem__)
        if steps[weakest] >= smallest:
            return tuple(Shift(at, levels[k], levels[k + 1], p) for k, (at, p) in enumerate(shifts))
        del shifts[weakest]
    return ()


def range_shifts(ranges: Sequence[Ends]) -> tuple[Shift, ...]:
    """Where exact values left their range, if one of the two ranges holds more than one result."""
    starts, low, high = [0], *ranges[0]
    for index, (lowest, highest) in enumerate(ranges):
        if highest < low or lowest > high:
            starts.append(index)
            low, high = lowest, highest
        low, high = min(low, lowest), max(high, highest)
    lengths = [end - start for start, end in pairwise([*starts, len(ranges)])]
    return tuple(
        Shift(start, sum(ranges[start - 1]) / 2, sum(ranges[start]) / 2, None)
        for start, before, after in zip(starts[1:], lengths, lengths[1:], strict=False)
        if max(before, after) >= _SEEN_TWICE
    )


def _split(values: Floats, offset: int) -> list[tuple[int, float]]:
    if len(values) < 2 * MIN_RESULTS:
        return []
    ranks = _ranks(values)
    observed = [_observed(ranks[begin:end], begin) for begin, end in _intervals(len(ranks))]
    a, b = _SCREEN
    if max(statistic for statistic, _, _ in observed) < a + b * np.log(len(ranks)):
        return []
    null = _null(ranks)
    critical = null[int(np.ceil((1 - ALPHA) * (len(null) + 1) - _ROUNDING)) - 1]
    significant = [(length, -statistic, at) for statistic, at, length in observed if statistic > critical]
    if not significant:
        return []
    _, negative, at = min(significant)
    p = (int((null >= -negative - 1e-9).sum()) + 1) / (len(null) + 1)
    parts = _split(values[:at], offset) + _split(values[at:], offset + at)
    return [*parts, (offset + at, p)]


def _intervals(n: int) -> Iterator[tuple[int, int]]:
    """Begin and end, the longest first; intervals of one length overlap by half."""
    length = float(n)
    while length >= 2 * MIN_RESULTS:
        size = int(np.ceil(length))
        count = 2 * int(np.ceil(n / length)) - 1
        for begin in np.unique(np.linspace(0, n - size, count).round().astype(int)):
            yield int(begin), int(begin) + size
        length *= _SHRINK if n < _MANY_RESULTS else _SHRINK**2


def _observed(ranks: Floats, begin: int) -> tuple[float, int, int]:
    """Largest statistic of an interval, corrected for autocorrelation; its position in the series; the length."""
    statistics = _statistics(np.cumsum(ranks)[None, :], np.cumsum(ranks**2)[None, :], 0, len(ranks))[0]
    at = int(np.argmax(statistics)) + MIN_RESULTS
    return float(statistics[at - MIN_RESULTS]) / _inflation(ranks, at), begin + at, len(ranks)


def _ranks(values: Floats) -> Floats:
    """Mid-ranks around 0."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return np.asarray((ranks - ranks.mean()) / len(values), dtype=np.float64)


def _statistics(sums: Floats, squares: Floats, begin: int, end: int) -> Floats:
    """The standardised sum of what comes before each position of an interval, one row a series.

    :param sums: cumulative ones of the ranks; `squares` of their squares.
    """
    n = end - begin
    first = np.arange(MIN_RESULTS, n - MIN_RESULTS + 1)
    before = sums[:, begin - 1, None] if begin else np.zeros((len(sums), 1))
    mean = (sums[:, end - 1, None] - before) / n
    power = squares[:, end - 1, None] - (squares[:, begin - 1, None] if begin else 0.0)
    variance = np.maximum(power / n - mean**2, _ROUNDING)
    # variance of a sum of k of n numbers that are drawn without replacement
    spread = np.sqrt(variance * (first * (n - first) / (n - 1)))
    return np.asarray(np.abs(sums[:, begin + first - 1] - before - first * mean) / spread, dtype=np.float64)


def _inflation(ranks: Floats, at: int) -> float:
    """Ratio of the standard error of a mean to that of independent values; at least 1."""
    residuals = np.concatenate([part - part.mean() for part in (ranks[:at], ranks[at:])])
    power, n = float(residuals @ residuals), len(residuals)
    if power < _ROUNDING:
        return 1.0
    r = max(float(residuals[1:] @ residuals[:-1]) / power, 0.0)
    # the estimate is too low by about (1+3r)/n (Kendall, Biometrika 41, 1954)
    r = min(r + (1 + 3 * r) / n, _MAX_CORRELATION) if r else 0.0
    return float(np.sqrt((1 + r) / (1 - r)))


def _null(ranks: Floats) -> Floats:
    """The largest statistic over all intervals for each of many random orders of `ranks`, sorted."""
    generator = np.random.default_rng(len(ranks))
    rows = max(1, _CHUNK // len(ranks))
    total = _PERMUTATIONS if len(ranks) < _MANY_RESULTS else _PERMUTATIONS // 2
    largest: list[Floats] = []
    for begin in range(0, total, rows):
        block = np.tile(ranks, (min(rows, total - begin), 1))
        generator.permuted(block, axis=1, out=block)
        sums, squares = np.cumsum(block, axis=1), np.cumsum(block**2, axis=1)
        statistics = [_statistics(sums, squares, a, b).max(axis=1) for a, b in _intervals(len(ranks))]
        largest.append(np.max(statistics, axis=0))
    return np.sort(np.concatenate(largest))
