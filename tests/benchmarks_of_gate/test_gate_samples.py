"""Blocks of rounds as other tools' users would measure them: one side after the other, or from another gate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from profiler.check.model import BASE, CANDIDATE, CONFIRM, MEASURE, Round, StepBlock
from tests.benchmarks.gate_rates import at_most
from tests.benchmarks.gate_rules import Rule
from tests.benchmarks.gate_samples import Samples, rule_rate, samples, sides

BLOCKS = 24


def a_round(gate: int, number: int, blocks: int = BLOCKS, kind: str = MEASURE) -> Round:
    """A round in which the time of a step identifies gate, round, block and side."""
    made = (
        StepBlock(side, 0, (2 * (1_000_000 * gate + 10_000 * number + 100 * block) + (side == CANDIDATE),) * 2)
        for block in range(1, blocks + 1)
        for side in (BASE, CANDIDATE)
    )
    return Round(number + 1, kind, (BASE, CANDIDATE), tuple(made))


def a_gate(gate: int, rounds: int = 5) -> dict[str, Any]:
    return {"rounds": [a_round(gate, number) for number in range(rounds)]}


def origin(times: np.ndarray[Any, Any]) -> tuple[list[int], ...]:
    """Gates, rounds, blocks and sides that samples come from."""
    half = times.astype(np.int64) // 2
    parts = (half // 1_000_000, half // 10_000 % 100, half // 100 % 100, times.astype(np.int64) % 2)
    return tuple(sorted(set(part.tolist())) for part in parts)


def origins(rows: Samples) -> list[tuple[tuple[list[int], ...], ...]]:
    return [(origin(base), origin(candidate)) for base, candidate in zip(rows.base, rows.candidate, strict=True)]


def test_same_job_takes_one_side_after_the_other_in_one_round() -> None:
    rows = samples([a_gate(1), a_gate(2)])["few, same job"]
    assert len(rows) == 20, "10 rounds, both ways"
    for base, candidate in origins(rows):
        assert base[:2] == candidate[:2]
        assert (base[3], candidate[3]) == ([0], [1])
        assert base[2][-1] < candidate[2][0] or candidate[2][-1] < base[2][0]


def test_a_stored_baseline_comes_from_another_gate() -> None:
    for name, number in (("few, stored", 2 * 25), ("many, stored", 2)):
        rows = samples([a_gate(1), a_gate(2)])[name]
        assert len(rows) == number
        assert all(base[0] != candidate[0] for base, candidate in origins(rows))


def test_many_samples_compare_early_rounds_with_late_ones() -> None:
    rows = samples([a_gate(1)])["many, same job"]
    assert [(base[1], candidate[1]) for base, candidate in origins(rows)] == [([0, 1], [3, 4]), ([3, 4], [0, 1])]
    assert rows.base.shape[1] == 2 * BLOCKS


def test_confirming_and_short_rounds_are_left_out_and_the_others_cut_to_one_length() -> None:
    gate = {"rounds": [a_round(1, 0, 30), a_round(1, 1, 24), a_round(1, 2, 19), a_round(1, 3, 30, CONFIRM)]}
    assert [len(base) for _, base, _ in sides([gate])[0]] == [24, 24]


def test_ways_without_data_are_left_out() -> None:
    assert set(samples([a_gate(1, rounds=3)])) == {"few, same job"}
    assert samples([{"rounds": []}]) == {}


def test_the_rate_of_a_rule_counts_rows_and_its_interval_gates() -> None:
    rows = samples([a_gate(gate) for gate in range(1, 7)])["few, same job"]
    late = Rule("", "", "", lambda base, candidate: candidate.mean(axis=-1) > base.mean(axis=-1))
    never = Rule("", "", "", lambda base, _: np.zeros(len(base), bool))
    assert rule_rate(late, rows, 6, np.random.default_rng(0)).rate == 0.5
    assert rule_rate(never, rows, 6, np.random.default_rng(0)).high == pytest.approx(at_most(0, 6))


@pytest.mark.parametrize(("wrong", "gates", "bound"), [(0, 60, 0.0487), (1, 60, 0.0766), (0, 300, 0.00994), (3, 3, 1)])
def test_the_bound_of_live_counts_is_clopper_and_pearsons(wrong: int, gates: int, bound: float) -> None:
    assert at_most(wrong, gates) == pytest.approx(bound, abs=1e-4)
