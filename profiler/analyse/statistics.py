"""Means, medians and 95% intervals of means and shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

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
