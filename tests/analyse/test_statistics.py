"""Student's t against a printed table, and the few statistics built on it."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.analyse import statistics


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (19, 2.093), (29, 2.045), (59, 2.001)]
)
def test_students_t(degrees: int, quantile: float) -> None:
    assert statistics.student_t(degrees) == pytest.approx(quantile, abs=5e-4)


def test_mean_interval_median_and_variation() -> None:
    mean, low, high = statistics.mean_interval([1.0, 2.0, 3.0])
    half = 4.302652729911275 / 3**0.5
    assert (mean, low, high) == pytest.approx((2, 2 - half, 2 + half))
    assert statistics.mean_interval([7.0]) == (7.0, None, None)
    assert statistics.median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert statistics.variation(np.array([1.0, 3.0])) == pytest.approx(2**0.5 / 2)
    assert statistics.variation(np.array([1.0])) == 0
