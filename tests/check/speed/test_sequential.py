"""Bounds, edges and looks of the sequential test."""

from __future__ import annotations

import math
import random

import pytest

from profiler.check.model import FAIL, INCONCLUSIVE, PASS
from profiler.check.speed import sequential
from profiler.check.speed.sequential import Bounds, bounds, edges, looks


@pytest.mark.parametrize(("rounds", "expected"), [(5, 3.747), (7, 3.143), (10, 2.821), (14, 2.650), (20, 2.539)])
def test_bounds_are_students(rounds: int, expected: float) -> None:
    values = [0.01 * (place % 2) for place in range(rounds)]
    of = bounds(values)
    assert (of.mean - of.low) / of.error == pytest.approx(expected, abs=0.001)
    assert of.high - of.mean == pytest.approx(of.mean - of.low)


def test_values_that_agree_by_chance_keep_the_error_of_their_own_rounds() -> None:
    of = bounds([0.01] * 5, errors=[0.02] * 5)
    assert of.error == pytest.approx(sequential.MIN_ERROR * 0.02 / math.sqrt(5))
    apart = [0.0, 0.1, 0.0, 0.1, 0.05]
    assert bounds(apart, errors=[0.02] * 5) == bounds(apart)
    with pytest.raises(ValueError, match="two values"):
        bounds([0.1])


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (20, (5, 7, 10, 14, 20)),
        (12, (5, 7, 10, 12)),
        (30, (5, 7, 10, 14, 20, 28, 30)),
        (5, (5,)),
        (3, (3,)),
        (1, (2,)),
        (0, (2,)),
    ],
)
def test_the_last_look_is_at_the_maximum(most: int, expected: tuple[int, ...]) -> None:
    assert looks(most) == expected


@pytest.mark.parametrize("detect", [0.01, 0.05, 0.5, 1.0])
def test_edges_are_shares_of_what_is_to_be_detected(detect: float) -> None:
    at = edges(detect)
    assert math.expm1(at.fails) == pytest.approx(0.4 * detect)
    assert math.expm1(at.passes) == pytest.approx(0.8 * detect)


def test_states() -> None:
    at = edges(0.05)
    for mean, error, expected in (
        (0.05, 0.005, FAIL),
        (0.0, 0.005, PASS),
        (0.03, 0.005, INCONCLUSIVE),
        (-0.5, 0.01, PASS),
        (0.05, 0.02, INCONCLUSIVE),
    ):
        of = Bounds(mean, mean - 2.8 * error, mean + 2.8 * error, error, 10)
        assert sequential.state(of, at) == expected, of
    of = Bounds(0.045, 0.0188, 0.0712, 0.0093, 10)
    assert sequential.state(of, at) == INCONCLUSIVE
    assert sequential.suspicion(of, at) == FAIL, "a suspicion is twice as soon"


def test_the_smallest_slow_down_fails_with_the_power_it_says() -> None:
    at, chance = edges(0.05), random.Random(1)
    spread = 0.015
    truth = sequential.smallest(Bounds(0, 0, 0, spread / math.sqrt(10), 10), at)
    failed = sum(bounds([chance.gauss(truth, spread) for _ in range(10)]).low > at.fails for _ in range(1000))
    assert 0.75 < failed / 1000 < 0.9, f"{failed} of 1000 gates of a slow-down of {truth:.4f} failed"


def test_more_rounds() -> None:
    at = edges(0.05)

    def of(mean: float, spread: float = 0.02) -> Bounds:
        return Bounds(mean, 0, 0, spread / math.sqrt(20), 20)

    near, far = sequential.more_rounds(of(0.029), at), sequential.more_rounds(of(0.036), at)
    assert near is not None
    assert far is not None
    assert near > far > 0, (near, far)
    assert sequential.more_rounds(of(0.0), at) == 1
    assert sequential.more_rounds(of(0.029, spread=1.0), at) is None
