"""Where a series changed: found where it did, silent on noise."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.analyse.statistics import MIN_RESULTS, level_shifts


def noisy(levels: list[float], each: int, noise: float) -> np.ndarray:
    return np.repeat(levels, each) + noise * np.random.default_rng(3).normal(size=each * len(levels))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (noisy([1.0, 1.2, 0.9, 1.3], 25, 0.03), [25, 50, 75]),
        (np.repeat([1.0, 2.0], MIN_RESULTS - 1), []),
        (np.repeat([1.0, 2.0], MIN_RESULTS + 2), [MIN_RESULTS + 2]),
        (np.where(np.arange(60) % 8 == 3, 3.0, noisy([1.0], 60, 0.01)), []),  # outliers
        (np.ones(50), []),
        (np.array([]), []),
    ],
)
def test_positions_of_level_shifts(values: np.ndarray, expected: list[int]) -> None:
    found = level_shifts(values)
    assert [shift.at for shift in found] == expected
    assert level_shifts(values.copy()) == found, "the permutations are the same each time"


def test_a_level_of_a_long_series_is_found() -> None:
    values = np.random.default_rng(8).normal(size=1200)
    values[800:] += 1
    (shift,) = level_shifts(values)
    assert abs(shift.at - 800) < 20


@pytest.mark.parametrize(
    ("kind", "most"), [("normal", 0.02), pytest.param("heavy", 0.02, marks=pytest.mark.slow), ("alike", 0.06)]
)
def test_it_does_not_cry_on_noise(kind: str, most: float) -> None:
    """Share of series without a change in which one is found; of 2,000 it was 2, 3 and 29."""
    random = np.random.default_rng(7)
    count, length, found = 300, 40, 0
    for _ in range(count):
        values = random.normal(size=length) if kind != "heavy" else random.standard_t(3, length)
        if kind == "alike":
            for k in range(1, length):
                values[k] = 0.3 * values[k - 1] + values[k] * np.sqrt(1 - 0.3**2)
        found += bool(level_shifts(values))
    assert found / count <= most, f"{found} of {count}"
