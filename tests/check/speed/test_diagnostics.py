"""Every warning is raised by a case of its own, and by no clean one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from profiler.check.model import BASE, CANDIDATE, Conditions, Limits, Round
from profiler.check.speed.diagnostics import diagnose
from profiler.core.errors import Notice
from tests.check.synthetic_rounds import Made, a_round, exact, gate, some

LIMITS = Limits()
CLEAN = Made()


def warnings(rounds: list[Round]) -> tuple[Notice, ...]:
    return diagnose(rounds, LIMITS)


def during(rounds: list[Round], conditions: Conditions) -> list[Round]:
    return [replace(one, conditions=conditions) for one in rounds]


def slowed(rounds: list[Round], number: int, by: float) -> list[Round]:
    """The machine is slower in one round."""
    slow = rounds[number]
    blocks = tuple(replace(block, steps=tuple(round(step * by) for step in block.steps)) for block in slow.blocks)
    return [*rounds[:number], replace(slow, blocks=blocks), *rounds[number + 1 :]]


CASES: dict[str, tuple[Callable[[], list[Round]], str, dict[str, Any]]] = {
    "few rounds": (lambda: some(2), "few-rounds", {"rounds": 2}),
    "lost rounds": (lambda: [*some(5), replace(a_round(6), blocks=())], "lost-rounds", {"lost": 1, "rounds": 6}),
    "few pairs": (lambda: some(5, replace(CLEAN, pairs=6, steps=20)), "few-pairs", {"pairs": 6}),
    "few steps": (lambda: some(5, replace(CLEAN, pairs=10, steps=1)), "few-steps", {"steps": 50}),
    "tokens of one side": (lambda: some(5, replace(CLEAN, tokens={CANDIDATE: 64})), "tokens-missing", {"side": BASE}),
    "other batches": (
        lambda: some(5, replace(CLEAN, tokens={BASE: 64, CANDIDATE: 96})),
        "tokens-differ",
        {"ratio": pytest.approx(1.5)},
    ),
    "drift": (lambda: exact(*(0.01 * number + 0.001 * (number % 2) for number in range(10))), "drift", {}),
    "odd round": (
        lambda: exact(0.001, 0.0, 0.15, 0.002, -0.001, 0.0, 0.001),
        "odd-round",
        {"round": 3, "slowdown": pytest.approx(0.15)},
    ),
    "rare stalls": (lambda: some(10, replace(CLEAN, every=50, stall=9.0)), "rare-stalls", {}),
    "start order": (lambda: some(10, replace(CLEAN, second_slot=0.05)), "start-order", {}),
    "block order": (lambda: some(8, replace(CLEAN, second_block=0.05)), "block-order", {}),
    "speed": (lambda: slowed(some(5), 3, 1.8), "unsteady-speed", {"slow": 4}),
    "steal": (lambda: during(some(5), Conditions(steal=0.09)), "steal", {"share": pytest.approx(0.09)}),
    "load": (
        lambda: during(some(5), Conditions(load=1.7, cores=2)),
        "load",
        {"threads": pytest.approx(1.7), "cores": 2},
    ),
    "load, cores unknown": (lambda: during(some(5), Conditions(load=1.2)), "load", {"cores": None}),
    "throttled": (
        lambda: [*during(some(2), Conditions(throttled=("CPU: thermal",))), *some(3, first=3)],
        "throttled",
        {"clocks": {"CPU: thermal": 2}, "rounds": 5},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_raised_alone(name: str) -> None:
    make, code, values = CASES[name]
    found = warnings(make())
    others = {"few-pairs"} if name == "lost rounds" else {"block-order", "few-steps"} if name == "few pairs" else set()
    (notice,) = (one for one in found if one.code == code)
    assert {key: notice.values[key] for key in values} == values
    assert {one.code for one in found} <= {code, *others}


@pytest.mark.parametrize(
    "made",
    [CLEAN, replace(CLEAN, slower=0.0488), replace(CLEAN, tokens={BASE: 64, CANDIDATE: 64}), Made(pairs=20, steps=1)],
)
def test_clean_gates_raise_next_to_none(made: Made) -> None:
    raised = [found for seed in range(10) if (found := warnings(gate(made, seed=seed)))]
    assert not raised, raised


def test_what_raises_no_warning() -> None:
    assert warnings([]) == ()
    assert warnings(during(some(5), Conditions(load=6.0, cores=64))) == (), "many cores are left"
    assert warnings(slowed(some(5), 2, 1.3)) == (), "a slow machine where the sides agree"
