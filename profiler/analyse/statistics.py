"""Means, medians and 95% intervals: of independent values, of shares, and of correlated samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats, Intervals, Times, covered_within, times
from profiler.analyse.sampling.stacks import COINCIDENT
from profiler.analyse.window import Window

CONFIDENCE: Final = 0.95
Z: Final = 1.96
"""Standard errors of a two-sided 95% interval of a normal distribution."""


@cache
def student_t(degrees: int) -> float:
    """Two-sided quantile of Student's t: |t| stays below it with `CONFIDENCE`.

    scipy.special.stdtrit (Cephes), which imports in a fifth of the time that scipy.stats takes.
    """
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


@cache
def f_quantile(degrees: int, other_degrees: int) -> float:
    """One-sided quantile of the ratio of two variances of normal values: it stays below it with `CONFIDENCE`."""
    from scipy.special import fdtri

    return float(fdtri(degrees, other_degrees, CONFIDENCE))


def mean_interval(values: Sequence[float] | npt.NDArray[np.float64]) -> tuple[float, float | None, float | None]:
    """Mean and its 95% t interval, taking the values as independent; no interval for a single value."""
    array = np.asarray(values, np.float64)
    mean = float(array.mean())
    if len(array) < 2:
        return mean, None, None
    half = student_t(len(array) - 1) * float(array.std(ddof=1)) / math.sqrt(len(array))
    return mean, mean - half, mean + half


def share_interval(share: float, n: float) -> tuple[float, float]:
    """95% interval of a share of `n` independent samples: Wilson's score, which is honest at 0 and 1 too."""
    if n <= 0:
        return 0.0, 1.0
    share = min(1.0, max(0.0, share))
    middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the middle two."""
    return float(np.median(values))


def variation(values: npt.NDArray[np.float64]) -> float:
    """Coefficient of variation: standard deviation over mean; 0 for fewer than two values."""
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
        """The number of independent samples that `n` samples of some rows are worth.

        :param values: a value between 0 and 1 for each of `rows`.
        """
        ns = self.ns[rows]
        return effective_sample_size(values @ ns, ns.sum(axis=0), n, self.unsampled)

    def sum_by(self, number: npt.NDArray[np.int64]) -> Floats:
        """The ns of the rows of each number in each batch (numbers x batches)."""
        sums = np.zeros((int(number.max(initial=-1)) + 1, self.ns.shape[1]))
        np.add.at(sums, number, self.ns)
        return sums


def batch_edges(window: Window, gil_windows: Intervals) -> Times:
    """The boundaries between batches of the measured time. Where windows of the GIL's holder alternate with others,
    each batch holds half a window and the samples beside it.

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
    """The ns of samples in each batch (rows x batches), or without `row` the ns of all in each."""
    batch, count = np.searchsorted(edges, times(moments), "right"), len(edges) + 1
    if row is None:
        return np.bincount(batch, ns, minlength=count).astype(np.float64)
    rows = times(row)
    sums = np.bincount(rows * count + batch, ns, minlength=(int(rows.max(initial=-1)) + 1) * count)
    return sums.astype(np.float64).reshape(-1, count)


def effective_sample_size(part: Floats, total: Floats, n: float, unsampled: float = 1.0) -> float:
    """The number of independent samples that `n` samples are worth. In each batch `part` of `total` ns are of one kind.

    Batches may be shorter than the program's phases, so ever longer ones are tried.
    """
    ns = float(total.sum())
    share = float(part.sum()) / ns if ns else 0.0
    if not 0 < share < 1 or not n:
        return n
    variance = unsampled * _scaled_variance(part - share * total) / ns**2
    return share * (1 - share) / (share * (1 - share) / n + variance)


def ratio_interval(part: Floats, total: Floats) -> tuple[float, float] | None:
    """The 95% interval of a ratio up to 1 from pairs of neighbouring shares; None: too few of them.

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
    """Variance of the sum of what batches differ by, scaled so that 1.96 standard errors are a 95% interval though
    there are few batches. That of longer batches counts where it is larger by more than chance (an F test): the few
    that there are of them would else make every interval half as wide again."""
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
    """How many ns of the intervals lie in each batch."""
    low, high = np.iinfo(np.int64).min // 2, np.iinfo(np.int64).max // 2
    ends = np.concatenate([[low], edges, [high]])
    return covered_within(intervals, ends[:-1], ends[1:]).astype(np.float64)
