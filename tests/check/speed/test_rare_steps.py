"""Steps that are rare and long: made-up rounds with an evaluation in one of 2,000 steps."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from profiler.check.model import BASE, CANDIDATE, FAIL, LOOK, PASS, Limits, Round, StepBlock
from profiler.check.speed.rounds import ROUNDS, rare_steps

STEP = 1_000_000
STEPS, BLOCK = 3_000, 50


def looking(evaluation: dict[str, float], noise: float = 0.1, stalls: float = 0.0) -> Callable[[int], Round]:
    """Rounds of which step 2,000 of each side takes this many times as long as another one.

    :param stalls: share of the steps of both sides that other programs delay tenfold.
    """
    random = Random(1)

    def measure(number: int) -> Round:
        blocks = []
        for first in range(0, STEPS, BLOCK):
            for side in (BASE, CANDIDATE):
                steps = [STEP * random.lognormvariate(0, noise) for _ in range(BLOCK)]
                steps = [step * (10 if random.random() < stalls else 1) for step in steps]
                if first == 2_000:
                    steps[0] *= evaluation.get(side, 1.0)
                blocks.append(StepBlock(side, 0, tuple(map(round, steps))))
        return Round(number, LOOK, (BASE, CANDIDATE), tuple(blocks))

    return measure


def test_an_evaluation_that_costs_five_times_as_much_fails() -> None:
    steps, line = rare_steps(looking({BASE: 400, CANDIDATE: 2_000}), Limits())
    assert steps == STEPS
    assert line is not None
    assert (line.state, line.rounds) == (FAIL, ROUNDS)
    assert line.low is not None
    assert line.low > 0.02


def test_so_does_one_that_is_new() -> None:
    _, line = rare_steps(looking({CANDIDATE: 2_000}), Limits())
    assert line is not None
    assert line.state == FAIL


def test_the_same_evaluation_passes_after_one_round() -> None:
    for seconds in (10, 400):
        _, line = rare_steps(looking({BASE: seconds, CANDIDATE: seconds}, noise=0.0), Limits())
        assert line is not None
        assert (line.state, line.rounds, line.slowdown) == (PASS, 1, 0.0)


def test_without_a_long_step_there_is_no_line() -> None:
    assert rare_steps(looking({}), Limits()) == (STEPS, None)


def test_stalls_of_both_sides_do_not_fail() -> None:
    for share in (0.001, 0.01, 0.05):
        _, line = rare_steps(looking({}, stalls=share), Limits())
        assert line is not None
        assert line.state == PASS
