"""Costs that are divided among the categories of a step."""

from __future__ import annotations

from profiler.diagnose.rule import NOTHING, Cost, exactly, spread


def test_a_cost_is_spread_over_the_room_of_categories() -> None:
    room = {"python": 1.0, "compute": 3.0, "framework": -1.0}
    assert spread(Cost(2.0, 1.0, 4.0), room) == {"python": Cost(0.5, 0.25, 1.0), "compute": Cost(1.5, 0.75, 3.0)}
    assert spread(exactly(8.0), room) == {"python": exactly(1.0), "compute": exactly(3.0)}
    assert spread(NOTHING, room) == {}
    assert spread(exactly(1.0), {"python": 0.0}) == {}
