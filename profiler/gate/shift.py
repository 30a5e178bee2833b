"""Where the level of a noisy series changed: a rank test over every place, repeated on both parts.

The largest standardised Mann-Whitney statistic over all places of a change (Hawkins and Deng, "A Nonparametric
Change-Point Control Chart", Journal of Quality Technology 42, 2010), by binary segmentation (Scott and Knott,
"A Cluster Analysis Method for Grouping Means in the Analysis of Variance", Biometrics 30, 1974). Its significance
comes from permutations, so that no distribution is assumed. Neighbouring results of one machine are alike: the
statistic is divided by what a first-order autocorrelation does to the standard error of a mean, sqrt((1+r)/(1-r))
(Bartlett, "On the Theoretical Specification and Sampling Properties of Autocorrelated Time-Series", 1946).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

LEAST: Final = 5
"""Results on each side of a change: with fewer, no order of them is rare enough."""
ALPHA: Final = 0.005
"""Of one test; what that comes to in false alarms is in the simulations of tests/benchmarks."""
_PERMUTATIONS: Final = 1999
_CHUNK: Final = 100_000
"""Numbers that are permuted at once: 0.8 MB."""

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


def shifts(values: Floats, *, least: float = 0.0, alpha: float = ALPHA) -> tuple[Shift, ...]:
    """Changes of the level of `values`, in order; the same values give the same changes.

    :param least: changes of the median by less than this are left out.
    """
    found = sorted(_split(np.asarray(values, dtype=np.float64), 0, least, alpha))
    bounds = [0, *(at for at, _ in found), len(values)]
    levels = [float(np.median(values[a:b])) for a, b in pairwise(bounds)] if len(values) else []
    return tuple(Shift(at, levels[k], levels[k + 1], p) for k, (at, p) in enumerate(found))


def _split(values: Floats, offset: int, least: float, alpha: float) -> list[tuple[int, float]]:
    if len(values) < 2 * LEAST:
        return []
    ranks = _ranks(values)
    statistics = _statistics(ranks[None, :])[0]
    at = int(np.argmax(statistics)) + LEAST
    if abs(np.median(values[at:]) - np.median(values[:at])) < least:
        return []
    p = _chance(ranks, float(statistics.max()) / _inflation(ranks, at))
    if p > alpha:
        return []
    parts = _split(values[:at], offset, least, alpha) + _split(values[at:], offset + at, least, alpha)
    return [*parts, (offset + at, p)]


def _ranks(values: Floats) -> Floats:
    """Mid-ranks around 0, of variance 1; all 0 where all values are equal."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse]
    centred = ranks - ranks.mean()
    spread = centred.std()
    return np.asarray(centred / spread if spread else centred, dtype=np.float64)


def _statistics(ranks: Floats) -> Floats:
    """Of each row, for every place of a change: the standardised rank sum of what comes before it."""
    n = ranks.shape[1]
    first = np.arange(LEAST, n - LEAST + 1)
    sums = np.cumsum(ranks, axis=1)[:, first - 1]
    # variance of a sum of k of n numbers of variance 1, drawn without replacement
    return np.asarray(np.abs(sums) / np.sqrt(first * (n - first) / (n - 1)), dtype=np.float64)


def _inflation(ranks: Floats, at: int) -> float:
    """How much wider a mean is spread than were its values independent; at least 1."""
    rest = np.concatenate([part - part.mean() for part in (ranks[:at], ranks[at:])])
    power = float(rest @ rest)
    n = len(rest)
    if not power:
        return 1.0
    r = float(rest[1:] @ rest[:-1]) / power
    # the estimate is too low by about (1+4r)/n in a series whose mean is estimated (Kendall 1954)
    r = min(max(r + (1 + 4 * max(r, 0.0)) / n, 0.0), 0.9)
    return float(np.sqrt((1 + r) / (1 - r)))


def _chance(ranks: Floats, observed: float) -> float:
    """Share of the permutations of `ranks` whose largest statistic reaches `observed`."""
    generator = np.random.default_rng(len(ranks))
    rows = max(1, _CHUNK // len(ranks))
    left, reached = _PERMUTATIONS, 0
    while left > 0:
        block = np.tile(ranks, (min(rows, left), 1))
        permuted = generator.permuted(block, axis=1, out=block)
        reached += int((_statistics(permuted).max(axis=1) >= observed - 1e-9).sum())
        left -= len(block)
    return (reached + 1) / (_PERMUTATIONS + 1)
