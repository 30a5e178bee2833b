"""Tests of a few independent rounds that tell odd from chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

ODD: Final = 0.001
"""Two-sided: so seldom clean rounds look odd to one test."""


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def chance(difference: float, error: float, degrees: int) -> float:
    """Two-sided p of Student's t (scipy.special.stdtr, Cephes); 0 where there is no error at all but a difference."""
    from scipy.special import stdtr

    if error <= 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * stdtr(degrees, -abs(difference) / error))


def of_mean(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and the chance of one so far from 0; fewer than three values are no evidence."""
    if len(values) < 3:
        return (mean(values) if values else 0.0), 1.0
    middle = mean(values)
    square = math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)
    return middle, chance(middle, math.sqrt(square / len(values)), len(values) - 1)


def of_difference(some: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Mean of `some` less that of `others`, and the chance of one so far from 0, were both equally spread.

    Fewer than two of either are no evidence.
    """
    if min(len(some), len(others)) < 2:
        return 0.0, 1.0
    degrees = len(some) + len(others) - 2
    squares = math.fsum((value - mean(group)) ** 2 for group in (some, others) for value in group)
    error = math.sqrt(squares / degrees * (1 / len(some) + 1 / len(others)))
    difference = mean(some) - mean(others)
    return difference, chance(difference, error, degrees)
