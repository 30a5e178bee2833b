"""Turns of rounds as other tools' users would get them: one side after the other, or from another gate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from profiler.check.model import BASE, CANDIDATE, CONFIRM, MEASURE, Round, StepBlock
from tests.benchmarks import gate_feeds, gate_rates
from tests.benchmarks.gate_rules import Rule

TURNS = 24


def _gate(of: int, rounds: int = 5, turns: int = TURNS) -> dict[str, Any]:
    """The time of a step tells gate, round, turn and side: 10 000 of them, 100, 1 and a half."""
    return {"rounds": [_round(of, number, turns) for number in range(rounds)]}


def _round(of: int, number: int, turns: int, kind: str = MEASURE) -> Round:
    said = (
        StepBlock(side, 0, (2 * (1_000_000 * of + 10_000 * number + 100 * turn) + (side == CANDIDATE),) * 2)
        for turn in range(1, turns + 1)
        for side in (BASE, CANDIDATE)
    )
    return Round(number + 1, kind, (BASE, CANDIDATE), tuple(said))


def _where(samples: np.ndarray[Any, Any]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Gates, rounds, turns and sides that samples come from."""
    half = samples.astype(np.int64) // 2
    parts = (half // 1_000_000, half // 10_000 % 100, half // 100 % 100, samples.astype(np.int64) % 2)
    gates, rounds, turns, sides = (sorted(set(part.tolist())) for part in parts)
    return gates, rounds, turns, sides


def test_same_job_takes_one_side_after_the_other_of_one_round() -> None:
    fed = gate_feeds.feeds([_gate(1), _gate(2)])["few, same job"]
    assert len(fed) == 20, f"10 rounds both ways are {len(fed)} rows"
    for row in range(len(fed)):
        base, candidate = _where(fed.base[row]), _where(fed.candidate[row])
        assert base[:2] == candidate[:2], f"row {row} mixes rounds: {base} and {candidate}"
        assert (base[3], candidate[3]) == ([0], [1]), f"row {row} mixes sides: {base} and {candidate}"
        apart = base[2][-1] < candidate[2][0] or candidate[2][-1] < base[2][0]
        assert apart, f"row {row} interleaves turns: {base[2]} and {candidate[2]}"


def test_a_stored_baseline_is_of_another_gate() -> None:
    for name, rows in (("few, stored", 2 * 25), ("many, stored", 2)):
        fed = gate_feeds.feeds([_gate(1), _gate(2)])[name]
        assert len(fed) == rows, f"{name}: {len(fed)} rows"
        for row in range(rows):
            base, candidate = _where(fed.base[row])[0], _where(fed.candidate[row])[0]
            assert base != candidate, f"{name}: row {row} is of gate {base} and {candidate}"


def test_many_samples_are_of_early_rounds_against_late_ones() -> None:
    fed = gate_feeds.feeds([_gate(1)])["many, same job"]
    assert [_where(side[0])[1] for side in (fed.base, fed.candidate)] == [[0, 1], [3, 4]]
    assert [_where(side[1])[1] for side in (fed.base, fed.candidate)] == [[3, 4], [0, 1]]
    assert fed.base.shape[1] == 2 * TURNS, f"{fed.base.shape[1]} samples of two rounds"


def test_rounds_that_confirm_and_short_ones_are_left_out_and_others_cut_alike() -> None:
    gate = {"rounds": [_round(1, 0, 30), _round(1, 1, 24), _round(1, 2, 19), _round(1, 3, 30, CONFIRM)]}
    found = gate_feeds.sides([gate])[0]
    assert [len(base) for _, base, _ in found] == [24, 24], "two usable rounds, cut to the shorter one"


def test_what_there_is_no_data_for_is_left_out() -> None:
    assert set(gate_feeds.feeds([_gate(1, rounds=3)])) == {"few, same job"}
    assert gate_feeds.feeds([{"rounds": []}]) == {}


def test_a_rate_counts_rows_and_its_interval_gates() -> None:
    gates = [_gate(of) for of in range(1, 7)]
    fed = gate_feeds.feeds(gates)["few, same job"]
    rng = np.random.default_rng(0)
    late = Rule("late", "", "", lambda base, candidate: candidate.mean(axis=-1) > base.mean(axis=-1))
    found = gate_feeds.apply(late, fed, len(gates))
    assert gate_rates.of_found(found, rng).rate == 0.5, f"{found.failed.sum()} of {found.fed.sum()}: every other row"
    never = gate_feeds.apply(Rule("", "", "", lambda base, _: np.zeros(len(base), bool)), fed, len(gates))
    bound = gate_rates.of_found(never, rng)
    assert bound.high == pytest.approx(gate_rates.at_most(0, 6)), f"6 gates without an alarm bound it at {bound.high}"


@pytest.mark.parametrize(("wrong", "gates", "bound"), [(0, 60, 0.0487), (1, 60, 0.0766), (0, 300, 0.00994), (3, 3, 1)])
def test_the_bound_of_live_counts_is_clopper_pearsons(wrong: int, gates: int, bound: float) -> None:
    found = gate_rates.at_most(wrong, gates)
    assert found == pytest.approx(bound, abs=1e-4), f"{wrong} of {gates}: {found}"
