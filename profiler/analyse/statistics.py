"""Computes means, medians and 95% intervals, and finds where a series changed its level.

The values of a mean are independent; samples are correlated, and their intervals come from batches of time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats, Intervals, Times, covered_within, times
from profiler.analyse.window import Window

CONFIDENCE: Final = 0.95
Z: Final = 1.96
"""Standard errors of a two-sided 95% interval of a normal distribution."""


@cache
def student_t(degrees: int) -> float:
    """Return the two-sided quantile of Student's t: |t| stays below it with `CONFIDENCE`.

    scipy.special.stdtrit (Cephes), which imports in a fifth of the time that scipy.stats takes.
    """
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


@cache
def f_quantile(degrees: int, other_degrees: int) -> float:
    """Return the one-sided quantile of the ratio of two variances of normal values, which `CONFIDENCE` stay below."""
    from scipy.special import fdtri

    return float(fdtri(degrees, other_degrees, CONFIDENCE))


def mean_interval(values: Sequence[float] | npt.NDArray[np.float64]) -> tuple[float, float | None, float | None]:
    """Return the mean and its 95% t interval, taking the values as independent; no interval for a single value."""
    array = np.asarray(values, np.float64)
    mean = float(array.mean())
    if len(array) < 2:
        return mean, None, None
    half = student_t(len(array) - 1) * float(array.std(ddof=1)) / math.sqrt(len(array))
    return mean, mean - half, mean + half


def share_interval(share: float, n: float) -> tuple[float, float]:
    """Return the 95% interval of a share of `n` independent samples: Wilson's score, which is honest at 0 and 1 too."""
    if n <= 0:
        return 0.0, 1.0
    share = min(1.0, max(0.0, share))
    middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the middle two."""
    return float(np.median(values))


def variation(values: npt.NDArray[np.float64]) -> float:
    """Return the coefficient of variation: standard deviation over mean; 0 for fewer than two values."""
    return float(values.std(ddof=1) / values.mean()) if len(values) > 1 and values.mean() else 0.0


# ---------------------------------------------------------------- correlated samples: batch means

MAX_BATCHES: Final = 20
"""Batches of time: enough for a variance, and few enough to be longer than most phases."""
MIN_BATCHES: Final = 4
"""With fewer batches their variance means nothing."""
_RATIOS: Final = 101
"""Ratios between 0 and 1 that are tested for an interval."""


@dataclass(frozen=True, eq=False, slots=True)
class Batches:
    """The ns that each row of samples stands for in each batch of time (rows x batches)."""

    ns: Floats
    unsampled: float
    """Share of the measured time that no sample stands for: only that part is uncertain."""

    def effective_size(self, rows: npt.NDArray[np.bool_], values: Floats, n: float) -> float:
        """Return the number of independent samples that `n` samples of some rows are worth.

        :param values: a value between 0 and 1 for each of `rows`.
        """
        ns = self.ns[rows]
        return effective_sample_size(values @ ns, ns.sum(axis=0), n, self.unsampled)

    def sum_by(self, number: npt.NDArray[np.int64]) -> Floats:
        """Return the ns of the rows of each number in each batch (numbers x batches)."""
        sums = np.zeros((int(number.max(initial=-1)) + 1, self.ns.shape[1]))
        np.add.at(sums, number, self.ns)
        return sums


def batch_edges(window: Window, gil_windows: Intervals) -> Times:
    """Return the boundaries between batches of the measured time. Where windows of the GIL's holder alternate with
    others, each batch holds half a window and the samples beside it.

    :param gil_windows: windows in which the GIL's holder was sampled. Where they cover most of the time, and with one
        or none, the batches are of one length.
    """
    first, last = int(window.begin[0]), int(window.end[-1])
    if 2 * len(gil_windows) < MIN_BATCHES or gil_windows.measure() > COINCIDENT * (last - first):
        return times(np.linspace(first, last, MAX_BATCHES + 1)[1:-1])
    edges = np.empty(2 * len(gil_windows) - 1, np.int64)
    edges[::2] = (gil_windows.begin + gil_windows.end) // 2
    edges[1::2] = (gil_windows.end[:-1] + gil_windows.begin[1:]) // 2
    size = -(-2 * len(gil_windows) // MAX_BATCHES)
    return edges[size - 1 :: size]


def sum_in_batches(edges: Times, moments: npt.ArrayLike, ns: npt.ArrayLike, row: npt.ArrayLike | None = None) -> Floats:
    """Return the ns of samples in each batch (rows x batches), or without `row` the ns of all in each."""
    batch, count = np.searchsorted(edges, times(moments), "right"), len(edges) + 1
    if row is None:
        return np.bincount(batch, ns, minlength=count).astype(np.float64)
    rows = times(row)
    sums = np.bincount(rows * count + batch, ns, minlength=(int(rows.max(initial=-1)) + 1) * count)
    return sums.astype(np.float64).reshape(-1, count)


def effective_sample_size(part: Floats, total: Floats, n: float, unsampled: float = 1.0) -> float:
    """Return the number of independent samples that `n` samples are worth. In each batch `part` of `total` ns are of
    one kind.

    Batches may be shorter than the program's phases, so ever longer ones are tried.
    """
    ns = float(total.sum())
    share = float(part.sum()) / ns if ns else 0.0
    if not 0 < share < 1 or not n:
        return n
    variance = unsampled * _scaled_variance(part - share * total) / ns**2
    return share * (1 - share) / (share * (1 - share) / n + variance)


def ratio_interval(part: Floats, total: Floats) -> tuple[float, float] | None:
    """Return the 95% interval of a ratio up to 1 from pairs of neighbouring shares; None: too few of them.

    All ratios that the pairs do not contradict (Fieller's method). A symmetric interval would be wrong where few
    batches have any samples.
    """
    if len(part) < MIN_BATCHES or not total.sum():
        return None
    ratios = [float(part.sum() / total.sum())]
    for ratio in np.linspace(0.0, 1.0, _RATIOS):
        difference = part - ratio * total
        if abs(float(difference.sum())) <= Z * math.sqrt(_scaled_variance(difference)):
            ratios.append(float(ratio))
    return min(ratios), max(ratios)


def _scaled_variance(differences: Floats) -> float:
    """Return the variance of the sum of what batches differ by, scaled so that 1.96 standard errors are a 95% interval
    though there are few batches. That of longer batches counts where it is larger by more than chance (an F test): the
    few that there are of them would else make every interval half as wide again."""
    largest = first = 0.0
    least = len(differences) - 1
    while len(differences) >= MIN_BATCHES:
        count, deviations = len(differences), differences - differences.mean()
        variance = count / (count - 1) * float((deviations**2).sum())
        if not first or variance > f_quantile(count - 1, least) * first:
            first = first or variance
            largest = max(largest, (student_t(count - 1) / Z) ** 2 * variance)
        differences = np.add.reduceat(differences, np.arange(0, count, 2))
    return largest


def covered_in_batches(edges: Times, intervals: Intervals) -> Floats:
    """Return how many ns of the intervals lie in each batch."""
    low, high = np.iinfo(np.int64).min // 2, np.iinfo(np.int64).max // 2
    ends = np.concatenate([[low], edges, [high]])
    return covered_within(intervals, ends[:-1], ends[1:]).astype(np.float64)


# ---------------------------------------------------------------- change points
#
# A rank test at every position finds them, in intervals of every length. The statistic of a position is the
# standardised rank sum of what comes before it within an interval (Mann-Whitney), as in Hawkins and Deng, "A
# Nonparametric Change-Point Control Chart", Journal of Quality Technology 42 (2010). The intervals are those of seeded
# binary segmentation (Kovacs, Buhlmann, Li and Munk, Biometrika 110, 2023). Of these the shortest that shows a change
# is taken, so that a rise that was soon reverted is found too (Baranowski, Chen and Fryzlewicz, "Narrowest-over-
# threshold detection", JRSS B 81, 2019). Significance comes from permutations of the series, of the largest statistic
# over all intervals and positions: no distribution is assumed. Neighbouring results of one machine are correlated. So a
# statistic is divided by what a first-order autocorrelation within its interval does to the standard error of a mean,
# sqrt((1+r)/(1-r)) (Bartlett, Journal of the Royal Statistical Society, Supplement 8, 1946).

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
    """Return changes of the level of `values`, in order; the same values give the same changes.

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
    """Return where exact values left their range, if one of the two ranges holds more than one result."""
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
    """Yield the begin and end, the longest first; intervals of one length overlap by half."""
    length = float(n)
    while length >= 2 * MIN_RESULTS:
        size = int(np.ceil(length))
        count = 2 * int(np.ceil(n / length)) - 1
        for begin in np.unique(np.linspace(0, n - size, count).round().astype(int)):
            yield int(begin), int(begin) + size
        length *= _SHRINK if n < _MANY_RESULTS else _SHRINK**2


def _observed(ranks: Floats, begin: int) -> tuple[float, int, int]:
    """Return the largest statistic of an interval, corrected for autocorrelation; its position in the series; the
    length."""
    statistics = _statistics(np.cumsum(ranks)[None, :], np.cumsum(ranks**2)[None, :], 0, len(ranks))[0]
    at = int(np.argmax(statistics)) + MIN_RESULTS
    return float(statistics[at - MIN_RESULTS]) / _inflation(ranks, at), begin + at, len(ranks)


def _ranks(values: Floats) -> Floats:
    """Return mid-ranks around 0."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return np.asarray((ranks - ranks.mean()) / len(values), dtype=np.float64)


def _statistics(sums: Floats, squares: Floats, begin: int, end: int) -> Floats:
    """Return the standardised sum of what comes before each position of an interval, one row a series.

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
    """Return the ratio of the standard error of a mean to that of independent values; at least 1."""
    residuals = np.concatenate([part - part.mean() for part in (ranks[:at], ranks[at:])])
    power, n = float(residuals @ residuals), len(residuals)
    if power < _ROUNDING:
        return 1.0
    r = max(float(residuals[1:] @ residuals[:-1]) / power, 0.0)
    # the estimate is too low by about (1+3r)/n (Kendall, Biometrika 41, 1954)
    r = min(r + (1 + 3 * r) / n, _MAX_CORRELATION) if r else 0.0
    return float(np.sqrt((1 + r) / (1 - r)))


def _null(ranks: Floats) -> Floats:
    """Return the largest statistic over all intervals for each of many random orders of `ranks`, sorted."""
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


COINCIDENT: Final = 0.6
"""Share of the measured time from which windows of the GIL's holder lie beside those of all threads: in runs in which
they alternated, they covered at most 0.5."""
