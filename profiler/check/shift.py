"""Where the level of a noisy series changed: a rank test over every place, in intervals of every length.

The statistic of a place is the standardised rank sum of what comes before it within an interval (Mann-Whitney), as in
Hawkins and Deng, "A Nonparametric Change-Point Control Chart", Journal of Quality Technology 42 (2010). The intervals
are those of seeded binary segmentation (Kovacs, Buhlmann, Li and Munk, Biometrika 110, 2023), of which the shortest
that shows a change is taken (Baranowski, Chen and Fryzlewicz, "Narrowest-over-threshold detection", JRSS B 81, 2019):
so a rise that was taken back soon is found too. Significance comes from permutations of the series, of the largest
statistic over all intervals and places: no distribution is assumed. Neighbouring results of one machine are alike: a
statistic is divided by what a first-order autocorrelation within its interval does to the standard error of a mean,
sqrt((1+r)/(1-r)) (Bartlett, Journal of the Royal Statistical Society, Supplement 8, 1946).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

LEAST: Final = 5
"""Results on each side of a change: with fewer, no order of them is rare enough."""
ALPHA: Final = 0.002
"""Share of series without a change in which one is found, were the values independent."""
_PERMUTATIONS: Final = 999
_LONG: Final = 300
"""From so many results on half of the permutations are drawn and lengths of intervals are halved: 3,000 take 3 s."""
_CHUNK: Final = 200_000
"""Numbers that are permuted at once: 1.6 MB."""
_SHRINK: Final = 2**-0.5
"""From one length of intervals to the next, as in the paper."""
_SURELY_NOT: Final = (1.9, 0.33)
"""a, b: no statistic below a + b ln n is significant, so that permutations need not be drawn. Fitted below the
quantiles of 14 to 3,000 results."""
_NOTHING: Final = 1e-12
"""Of ranks that are all equal but for rounding."""
_MOST: Final = 0.9
"""Autocorrelation, above which an estimate from one interval says nothing."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shift:
    """A new level."""

    at: int
    """Index of the first value of the new level."""
    before: float
    """Median of the level before."""
    after: float
    p: float
    """Share of the permutations that look at least as much like a change."""


def shifts(values: Floats, *, least: float = 0.0) -> tuple[Shift, ...]:
    """Changes of the level of `values`, in order; the same values give the same changes.

    :param least: changes of the median by less than this are left out.
    """
    values = np.asarray(values, dtype=np.float64)
    found = sorted(_split(values, 0))
    while found:
        levels = [float(np.median(values[a:b])) for a, b in pairwise([0, *(at for at, _ in found), len(values)])]
        steps = [abs(after - before) for before, after in pairwise(levels)]
        smallest = min(range(len(steps)), key=steps.__getitem__)
        if steps[smallest] >= least:
            return tuple(Shift(at, levels[k], levels[k + 1], p) for k, (at, p) in enumerate(found))
        del found[smallest]
    return ()


def _split(values: Floats, offset: int) -> list[tuple[int, float]]:
    if len(values) < 2 * LEAST:
        return []
    ranks = _ranks(values)
    observed = [_observed(ranks[begin:end], begin) for begin, end in _intervals(len(ranks))]
    a, b = _SURELY_NOT
    if max(statistic for statistic, _, _ in observed) < a + b * np.log(len(ranks)):
        return []
    null = _null(ranks)
    critical = null[int(np.ceil((1 - ALPHA) * (len(null) + 1) - _NOTHING)) - 1]
    over = [(length, -statistic, at) for statistic, at, length in observed if statistic > critical]
    if not over:
        return []
    _, least, at = min(over)
    p = (int((null >= -least - 1e-9).sum()) + 1) / (len(null) + 1)
    parts = _split(values[:at], offset) + _split(values[at:], offset + at)
    return [*parts, (offset + at, p)]


def _intervals(n: int) -> Iterator[tuple[int, int]]:
    """Begin and end, the whole first; each length twice over, every other one shifted by half."""
    length = float(n)
    while length >= 2 * LEAST:
        whole = int(np.ceil(length))
        count = 2 * int(np.ceil(n / length)) - 1
        for begin in np.unique(np.linspace(0, n - whole, count).round().astype(int)):
            yield int(begin), int(begin) + whole
        length *= _SHRINK if n < _LONG else _SHRINK**2


def _observed(ranks: Floats, begin: int) -> tuple[float, int, int]:
    """Of one interval: the largest statistic, allowing for autocorrelation; its place in the series; the length."""
    statistics = _statistics(np.cumsum(ranks)[None, :], np.cumsum(ranks**2)[None, :], 0, len(ranks))[0]
    at = int(np.argmax(statistics)) + LEAST
    return float(statistics[at - LEAST]) / _inflation(ranks, at), begin + at, len(ranks)


def _ranks(values: Floats) -> Floats:
    """Mid-ranks around 0."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return np.asarray((ranks - ranks.mean()) / len(values), dtype=np.float64)


def _statistics(sums: Floats, squares: Floats, begin: int, end: int) -> Floats:
    """For every place of a change in an interval: the standardised sum of what comes before it, a row a series.

    :param sums: cumulative ones of the ranks; `squares` of their squares.
    """
    n = end - begin
    first = np.arange(LEAST, n - LEAST + 1)
    before = sums[:, begin - 1, None] if begin else np.zeros((len(sums), 1))
    mean = (sums[:, end - 1, None] - before) / n
    power = squares[:, end - 1, None] - (squares[:, begin - 1, None] if begin else 0.0)
    variance = np.maximum(power / n - mean**2, _NOTHING)
    # variance of a sum of k of n numbers that are drawn without replacement
    spread = np.sqrt(variance * (first * (n - first) / (n - 1)))
    return np.asarray(np.abs(sums[:, begin + first - 1] - before - first * mean) / spread, dtype=np.float64)


def _inflation(ranks: Floats, at: int) -> float:
    """How much wider a mean is spread than were its values independent; at least 1."""
    rest = np.concatenate([part - part.mean() for part in (ranks[:at], ranks[at:])])
    power, n = float(rest @ rest), len(rest)
    if power < _NOTHING:
        return 1.0
    r = max(float(rest[1:] @ rest[:-1]) / power, 0.0)
    # the estimate is too low by about (1+3r)/n (Kendall, Biometrika 41, 1954)
    r = min(r + (1 + 3 * r) / n, _MOST) if r else 0.0
    return float(np.sqrt((1 + r) / (1 - r)))


def _null(ranks: Floats) -> Floats:
    """Of random orders of `ranks`: the largest statistic over all intervals, sorted."""
    generator = np.random.default_rng(len(ranks))
    rows = max(1, _CHUNK // len(ranks))
    total = _PERMUTATIONS if len(ranks) < _LONG else _PERMUTATIONS // 2
    largest: list[Floats] = []
    for begin in range(0, total, rows):
        block = np.tile(ranks, (min(rows, total - begin), 1))
        generator.permuted(block, axis=1, out=block)
        sums, squares = np.cumsum(block, axis=1), np.cumsum(block**2, axis=1)
        found = [_statistics(sums, squares, a, b).max(axis=1) for a, b in _intervals(len(ranks))]
        largest.append(np.max(found, axis=0))
    return np.sort(np.concatenate(largest))
