"""What a round measures: pairs of blocks, and the two lines made of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from profiler.check.model import BASE, CANDIDATE, MEASURE, Round, StepBlock
from profiler.check.speed.rounds import block_pairs, round_values
from tests.check.synthetic_rounds import Made, a_round, exact

STILL = Made(core=0.0, luck=0.0, outliers=0.0)


def blocks(*sides: str, ns: int = 1000, tokens: int = 0) -> Round:
    letters = {"A": BASE, "B": CANDIDATE, "C": "control"}
    made = tuple(StepBlock(letters[side], place, (ns,), tokens) for place, side in enumerate(sides))
    return Round(1, MEASURE, (BASE, CANDIDATE), made)


@pytest.mark.parametrize(
    ("order", "expected"),
    [("ABBABAAB", 4), ("", 0), ("A", 0), ("AAAA", 0), ("BBABBA", 2), ("ABBABA", 3), ("ABCCBA", 2), ("ACBBCAACB", 3)],
)
def test_each_block_is_in_at_most_one_pair(order: str, expected: int) -> None:
    assert len(block_pairs(blocks(*order))) == expected


def test_pairs_tell_the_sides_and_which_came_first() -> None:
    made = ((BASE, (10,)), (CANDIDATE, (20, 40)), (CANDIDATE, (30,)), (BASE, (15,)))
    one = Round(1, MEASURE, (), tuple(StepBlock(side, begin, steps) for begin, (side, steps) in enumerate(made)))
    pairs = block_pairs(one)
    assert pairs.base.tolist() == [10, 15]
    assert pairs.candidate.tolist() == [30, 30], "time for a step: the first block has two"
    assert pairs.candidate_first.tolist() == [False, True]


def test_blocks_without_steps_or_time_are_left_out() -> None:
    made = list(blocks(*"ABBAABBA").blocks)
    made[1] = replace(made[1], steps=())
    made[4] = replace(made[4], steps=(0,))
    values = round_values(Round(1, MEASURE, (), tuple(made)))
    assert (values.typical, values.all_steps) == (None, None)


@pytest.mark.parametrize("slower", [-0.3, 0.0, 0.05, 1.0])
def test_a_slow_down_of_every_step_is_measured_by_both_lines(slower: float) -> None:
    values = round_values(exact(slower)[0])
    assert values.typical == pytest.approx(slower, abs=1e-6)
    assert values.all_steps == pytest.approx(slower, abs=1e-6)
    assert values.excess == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_stall_of_every_tenth_step_is_in_the_line_of_all_steps_only(steps: int) -> None:
    pairs = 60 // steps  # whole periods
    values = round_values(a_round(1, MEASURE, replace(STILL, every=10, stall=0.5, pairs=pairs, steps=steps)))
    assert values.typical == pytest.approx(0, abs=1e-6)
    assert values.all_steps == pytest.approx(math.log(1.05), abs=1e-6)


def test_one_step_however_long_moves_no_line_much_and_is_told_apart() -> None:
    one = a_round(1, MEASURE, STILL)
    place = next(place for place, block in enumerate(one.blocks) if block.side == CANDIDATE)
    struck = replace(one.blocks[place], steps=(one.blocks[place].steps[0] * 200, *one.blocks[place].steps[1:]))
    values = round_values(replace(one, blocks=(*one.blocks[:place], struck, *one.blocks[place + 1 :])))
    assert values.typical == 0
    assert values.all_steps is not None
    assert values.all_steps < 0.02, values
    assert values.excess > 1, "the sums are 1 + 199 / 48 apart"


def test_slow_phases_of_the_machine_affect_both_sides_alike() -> None:
    one = a_round(1, MEASURE, replace(STILL, slower=0.05))
    speed = [1.0 if place < 20 else 3.0 for place in range(len(one.blocks))]
    slowed = tuple(
        replace(block, steps=tuple(round(step * by) for step in block.steps))
        for block, by in zip(one.blocks, speed, strict=True)
    )
    values = round_values(replace(one, blocks=slowed))
    assert values.typical == pytest.approx(0.05, abs=1e-6)
    assert values.all_steps == pytest.approx(0.05, abs=0.002), values


def test_work_is_counted_in_tokens_where_both_sides_report_them() -> None:
    both = round_values(a_round(1, MEASURE, replace(STILL, tokens={BASE: 100, CANDIDATE: 200})))
    assert both.typical == pytest.approx(-math.log(2), abs=1e-6)
    one_sided = round_values(a_round(1, MEASURE, replace(STILL, tokens={CANDIDATE: 200})))
    assert one_sided.typical == pytest.approx(0, abs=1e-6)


def test_errors_of_a_round_match_the_spread_of_rounds() -> None:
    made = Made(core=0.05, luck=0.0, outliers=0.05)
    values = [round_values(a_round(number, MEASURE, made)) for number in range(1, 201)]
    for name in ("typical", "all_steps"):
        scatter = float(np.std([getattr(one, name) for one in values]))
        error = float(np.mean([getattr(one, f"{name}_error") for one in values]))
        assert 0.75 < error / scatter < 1.35, f"{name}: rounds scatter by {scatter:.4f}, errors say {error:.4f}"
