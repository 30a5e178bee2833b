"""Every doubt is raised by a case of its own, and by no clean one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from profiler.check.doubts import doubts
from profiler.check.doubts_steps import too_short
from profiler.check.model import BASE, CANDIDATE, CONFIRM, Conditions, Limits, Round
from tests.check.made import Made, a_round, exact, gate, some
from tests.fakes.counting import one

LIMITS = Limits()
CLEAN = Made()


def said(rounds: list[Round]) -> tuple[str, ...]:
    return doubts(rounds, LIMITS)


def during(rounds: list[Round], conditions: Conditions) -> list[Round]:
    return [replace(one, conditions=conditions) for one in rounds]


def slowed(rounds: list[Round], number: int, by: float) -> list[Round]:
    """The machine is slower in one round."""
    slow = rounds[number]
    turns = tuple(replace(turn, steps=tuple(round(step * by) for step in turn.steps)) for turn in slow.turns)
    return [*rounds[:number], replace(slow, turns=turns), *rounds[number + 1 :]]


def confirming(control: float) -> list[Round]:
    made = replace(CLEAN, slower=0.05, control=control)
    return [*some(5, made), *(a_round(number, CONFIRM, made) for number in range(6, 11))]


CASES: dict[str, tuple[Callable[[], list[Round]], str]] = {
    "few rounds": (lambda: some(3), "only 3 rounds that say something"),
    "one round": (lambda: some(1, replace(CLEAN, pairs=40)), "There was only 1 round that says something"),
    "lost rounds": (lambda: [*some(5), replace(a_round(6), turns=())], "1 of 6 rounds had too few turns"),
    "few pairs": (lambda: some(5, replace(CLEAN, pairs=6, steps=20)), "only 6 pairs of turns"),
    "few steps": (lambda: some(5, replace(CLEAN, pairs=10, steps=1)), "Only 50 steps of each side"),
    "tokens of one side": (lambda: some(5, replace(CLEAN, tokens={CANDIDATE: 64})), "The base does not say how many"),
    "other batches": (
        lambda: some(5, replace(CLEAN, tokens={BASE: 64, CANDIDATE: 96})),
        "1.50 times the base's tokens",
    ),
    "drift": (lambda: exact(*(0.01 * number + 0.001 * (number % 2) for number in range(10))), "from the first round"),
    "odd round": (lambda: exact(0.001, 0.0, 0.15, 0.002, -0.001, 0.0, 0.001), "Round 3 alone says +16.2%"),
    "rare stalls": (lambda: some(10, replace(CLEAN, every=50, stall=9.0)), "rare and long stalls"),
    "slots": (lambda: some(10, replace(CLEAN, second_slot=0.05)), "slower where its program is started second"),
    "positions": (lambda: some(8, replace(CLEAN, second_turn=0.05)), "slower where it is the second of its pair"),
    "control": (lambda: confirming(0.06), "The base against itself, which should be 0, is +"),
    "speed": (lambda: slowed(some(5), 3, 1.8), "times as long in round 4"),
    "steal": (lambda: during(some(5), Conditions(steal=0.09)), "took 9% of the cores' time (steal)"),
    "load": (lambda: during(some(5), Conditions(load=1.7, cores=2)), "1.7 threads of theirs wanted one of 2 cores"),
    "load, cores unknown": (
        lambda: during(some(5), Conditions(load=1.2)),
        "1.2 threads of theirs wanted one of the cores.",
    ),
    "load, one core": (lambda: during(some(5), Conditions(load=1.2, cores=1)), "of theirs wanted the only core."),
    "throttled": (
        lambda: [*during(some(2), Conditions(throttled=("CPU: thermal",))), *some(3, first=3)],
        "CPU: thermal in 2 of 5 rounds",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_raised(name: str) -> None:
    make, words = CASES[name]
    found = said(make())
    assert any(words in one for one in found), found
    assert all(one.endswith(".") and "\n" not in one for one in found), found


@pytest.mark.parametrize("name", [name for name in CASES if name not in {"lost rounds", "few pairs"}])
def test_it_comes_alone(name: str) -> None:
    """Other doubts are not raised by the same case."""
    found = said(CASES[name][0]())
    assert len(found) == 1, found


def test_a_program_that_ended_early_is_in_doubt() -> None:
    assert too_short((one(20), one(20)), 20) == too_short((), 20) == too_short((one(21),), 20) == ""
    assert too_short((one(20), one(7)), 20).startswith("The program ended after 7 of 20 steps to count: ")
    assert "--steps" in too_short((one(7),), 20)


def test_no_rounds_no_doubts() -> None:
    assert said([]) == ()


@pytest.mark.parametrize(
    "made",
    [CLEAN, replace(CLEAN, slower=0.0488), replace(CLEAN, tokens={BASE: 64, CANDIDATE: 64}), Made(pairs=16, steps=1)],
)
def test_clean_gates_raise_next_to_none(made: Made) -> None:
    raised = [found for seed in range(10) if (found := said(gate(made, seed=seed)))]
    assert not raised, raised


def test_no_load_of_others_beside_many_cores() -> None:
    assert said(during(some(5), Conditions(load=6.0, cores=64))) == ()


def test_a_slow_machine_is_in_no_doubt_where_the_sides_agree() -> None:
    assert said(slowed(some(5), 2, 1.3)) == ()
