"""Orders of turns and of starts."""

from __future__ import annotations

from random import Random

import pytest

from profiler.check.speed import order


@pytest.mark.parametrize("sides", ["ab", "abc"])
@pytest.mark.parametrize("pairs", [1, 15, 16, 24])
def test_every_side_has_as_many_turns(sides: str, pairs: int) -> None:
    turns = order.turns(sides, pairs, Random(1))
    assert {side: turns.count(side) for side in sides} == dict.fromkeys(sides, pairs)


def test_blocks_read_the_same_from_both_ends() -> None:
    turns = order.turns("ab", 24, Random(2))
    blocks = ["".join(turns[at : at + 4]) for at in range(0, len(turns), 4)]
    assert set(blocks) == {"abba", "baab"}


def test_first_and_second_place_change_from_round_to_round_and_swapped() -> None:
    firsts = [order.starts("ab", number, Random(3), swapped=False)[0] for number in range(1, 9)]
    assert firsts == ["a", "b"] * 4
    swapped = [order.starts("ab", number, Random(3), swapped=True)[0] for number in range(1, 9)]
    assert swapped == ["b", "a"] * 4


def test_a_third_program_is_started_anywhere() -> None:
    random = Random(4)
    places = {order.starts("abc", 1, random, swapped=True).index("c") for _ in range(50)}
    assert places == {0, 1, 2}
