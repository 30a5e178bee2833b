"""The layout of flame graphs: nested, bounded, of any depth."""

from __future__ import annotations

import pytest

from profiler.report.blocks import Frame
from profiler.report.render.flame import depth, layout


def frame(value: float, *children: Frame) -> Frame:
    return Frame("f", value, "", children=children)


def test_children_lie_within_their_caller_side_by_side() -> None:
    placed = layout(frame(10.0, frame(6.0, frame(2.0)), frame(3.0)))
    assert [(r.depth, r.left, r.width) for r in placed] == [
        (0, 0.0, 1.0),
        (1, 0.0, 0.6),
        (1, pytest.approx(0.6), 0.3),
        (2, 0.0, 0.2),
    ]
    for rectangle in placed[1:]:
        caller = placed[rectangle.parent]
        assert caller.depth == rectangle.depth - 1
        assert caller.left <= rectangle.left + 1e-12
        assert rectangle.left + rectangle.width <= caller.left + caller.width + 1e-12


def test_the_narrowest_are_left_out_first() -> None:
    placed = layout(frame(100.0, *(frame(float(i)) for i in range(13))), most=4)
    assert [round(r.width * 100) for r in placed] == [100, 10, 11, 12]


def test_a_stack_deeper_than_recursion_allows() -> None:
    deep = frame(1.0)
    for _ in range(5000):
        deep = Frame("f", 1.0, "", children=(deep,))
    assert depth(layout(deep, most=10_000)) == 5001


def test_nothing_to_draw() -> None:
    assert layout(frame(0.0)) == ()
    assert depth(()) == 0
