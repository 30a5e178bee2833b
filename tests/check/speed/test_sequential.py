"""Bounds, edges and looks of the sequential test."""

from __future__ import annotations

import math
import random

import pytest

from profiler.check.model import FAIL, INCONCLUSIVE, PASS
from profiler.check.speed import sequential
from profiler.check.speed.sequential import LUCK, PRIOR, Bounds, Estimate, bounds, confirmed, edges, looks


def estimates(*values: float, error: float = 0.0) -> list[Estimate]:
    """Rounds without stalls, whose errors are all the same."""
    return [Estimate(value, error, error) for value in values]


@pytest.mark.parametrize(("rounds", "expected"), [(3, 3.143), (5, 2.896), (7, 2.764), (10, 2.650), (17, 2.528)])
def test_bounds_are_students_with_the_degrees_of_the_errors(rounds: int, expected: float) -> None:
    of = bounds(estimates(*(0.01 * (place % 2) for place in range(rounds))))
    assert (of.mean - of.low) / of.error == pytest.approx(expected, abs=0.001)
    assert of.high - of.mean == pytest.approx(of.mean - of.low)


def test_rounds_that_differ_as_their_errors_say_have_the_error_of_their_weights() -> None:
    sd = math.hypot(0.02, LUCK)
    of = bounds(estimates(0.03 - sd, 0.03, 0.03 + sd, error=0.02))
    assert (of.mean, of.error) == pytest.approx((0.03, sd / math.sqrt(3)))
    with pytest.raises(ValueError, match="two values"):
        bounds(estimates(0.1))


def test_a_noisy_round_counts_less() -> None:
    quiet, noisy = Estimate(0.0, 0.0, 0.0), Estimate(0.3, 0.1, 0.1)
    share = LUCK**2 / (0.1**2 + 2 * LUCK**2)
    assert bounds([quiet, noisy]).mean == pytest.approx(0.3 * share)
    assert share < 0.01


def test_a_round_with_more_stalls_by_chance_counts_as_much_as_others() -> None:
    few, many = Estimate(0.01, 0.004, 0.004), Estimate(0.09, 0.05, 0.004)
    of = bounds([few, many, few, many])
    assert of.mean == pytest.approx(0.05)
    assert of.error > 0.05 / math.sqrt(2) / math.sqrt(4), "their error is that of all rounds"


def test_rounds_that_differ_more_than_their_errors_widen_the_bounds() -> None:
    alike, apart = estimates(0.0, 0.01, 0.02, 0.01, 0.01), estimates(-0.1, 0.1, 0.05, -0.03, 0.03)
    assert bounds(alike).mean == pytest.approx(bounds(apart).mean)
    assert bounds(apart).error > 3 * bounds(alike).error
    squares = sum((one.value - 0.01) ** 2 for one in apart) / LUCK**2
    assert bounds(apart).error == pytest.approx(LUCK / math.sqrt(5) * math.sqrt((PRIOR + squares) / (PRIOR + 4)))


def test_three_rounds_that_agree_by_chance_decide_nothing_if_their_errors_are_large() -> None:
    at = edges(0.05)
    assert sequential.state(bounds(estimates(0.0, 0.0, 0.0)), at) == PASS
    assert sequential.state(bounds(estimates(0.0, 0.0, 0.0, error=0.03)), at) == INCONCLUSIVE
    assert sequential.suspicion(bounds(estimates(0.06, 0.06, 0.06)), at) == FAIL
    assert sequential.suspicion(bounds(estimates(0.06, 0.06, 0.06, error=0.04)), at) == INCONCLUSIVE


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (20, (3, 4, 5, 7, 10, 14, 20)),
        (12, (3, 4, 5, 7, 10, 12)),
        (30, (3, 4, 5, 7, 10, 14, 20, 28, 30)),
        (5, (3, 4, 5)),
        (3, (3,)),
        (1, (3,)),
        (0, (3,)),
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
    of = Bounds(0.045, 0.0188, 0.0712, 0.0105, 10)
    assert sequential.state(of, at) == INCONCLUSIVE
    assert sequential.suspicion(of, at) == FAIL, "a suspicion is twice as soon"


def test_the_smallest_slow_down_fails_with_the_power_it_says() -> None:
    at, chance = edges(0.05), random.Random(1)
    spread = 0.015
    truth = sequential.smallest(Bounds(0, 0, 0, spread / math.sqrt(10), 10), at)
    error = math.sqrt(spread**2 - LUCK**2)
    drawn = (estimates(*(chance.gauss(truth, spread) for _ in range(10)), error=error) for _ in range(1000))
    failed = sum(bounds(rounds).low > at.fails for rounds in drawn)
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


def test_a_suspicion_is_confirmed_by_rounds_that_are_slower_by_themselves_and_with_the_others() -> None:
    at, suspecting = edges(0.05), estimates(0.05, 0.052, 0.048)
    assert confirmed(suspecting, [], at) is None
    assert confirmed(suspecting, estimates(0.05), at) is None, "one round is no look"
    assert confirmed(suspecting, estimates(0.05, 0.05), at) is True
    assert confirmed(suspecting, estimates(0.05, 0.05, error=0.06), at) is None, "they are too noisy"
    assert confirmed(estimates(-0.05, -0.05, -0.05), estimates(0.05, 0.05), at) is None, "all together are not slower"
    assert confirmed(suspecting, estimates(0.0, 0.0), at) is None
    assert confirmed(suspecting, estimates(0.01, 0.01, *[0.05] * 2), at) is None, "four rounds are no look"
    assert confirmed(suspecting, estimates(0.01, 0.01, *[0.05] * 2), at, final=True) is True
    assert confirmed(suspecting, estimates(0.01, 0.01, *[0.05] * 3), at) is True
    assert confirmed(suspecting, estimates(*[0.0] * 8), at) is False
