"""Interval algebra against brute force: every nanosecond of small timelines, one by one."""

from __future__ import annotations

import random

import numpy as np

from profiler.analyse import intervals
from profiler.analyse.intervals import Intervals
from tests.fakes.seeds import for_each_seed

HORIZON = 24


def random_pairs(rng: random.Random, most: int = 8) -> tuple[list[int], list[int]]:
    pairs = [sorted(rng.choices(range(HORIZON), k=2)) for _ in range(rng.randrange(most))]
    return [low for low, _ in pairs], [high for _, high in pairs]


def cells(begin: object, end: object) -> set[int]:
    return {t for low, high in zip(begin, end, strict=True) for t in range(low, high)}  # type: ignore[call-overload]


def check_form(intervals: Intervals) -> None:
    assert (intervals.end > intervals.begin).all()
    assert (intervals.begin[1:] >= intervals.end[:-1]).all()
    assert intervals.begin.dtype == intervals.end.dtype == np.int64


@for_each_seed(300)
def test_algebra_agrees_with_sets_of_moments(seed: int) -> None:
    rng = random.Random(seed)
    one_pairs, other_pairs = random_pairs(rng), random_pairs(rng)
    one, other = intervals.union(*one_pairs), intervals.union(*other_pairs)
    a, b = cells(*one_pairs), cells(*other_pairs)
    low, high = sorted(rng.choices(range(HORIZON), k=2))
    for got, expected in (
        (one, a),
        (intervals.intersect(one, other), a & b),
        (intervals.subtract(one, other), a - b),
        (intervals.complement(one, low, high), set(range(low, high)) - a),
    ):
        check_form(got)
        assert cells(got.begin, got.end) == expected
        assert got.measure() == len(expected)
    moments = list(range(HORIZON + 1))
    assert intervals.covered_before(one, moments).tolist() == [len({t for t in a if t < m}) for m in moments]
    within = intervals.covered_within(one, *other_pairs).tolist()
    assert within == [len(a & set(range(low, high))) for low, high in zip(*other_pairs, strict=True)]


@for_each_seed(300)
def test_overlaps_agree_with_pairs(seed: int) -> None:
    rng = random.Random(seed)
    begin, end = random_pairs(rng)
    windows = intervals.union(*random_pairs(rng))
    got = intervals.overlaps(begin, end, windows)
    rows = sorted(zip(got.left.tolist(), got.right.tolist(), got.begin.tolist(), got.end.tolist(), strict=True))
    expected = []
    for left, (low, high) in enumerate(zip(begin, end, strict=True)):
        for right, (first, last) in enumerate(zip(windows.begin.tolist(), windows.end.tolist(), strict=True)):
            if high > low and max(low, first) < min(high, last):
                expected.append((left, right, max(low, first), min(high, last)))
    assert rows == sorted(expected)


def brute_innermost(begin: list[int], end: list[int], rank: list[int]) -> tuple[dict[int, int], int]:
    """Owner of every moment by walking a stack, one moment at a time."""
    order = sorted((i for i in range(len(begin)) if end[i] > begin[i]), key=lambda i: (begin[i], -end[i], rank[i], i))
    ends, owners, crossings = list(end), {}, 0
    stack: list[int] = []
    for moment in range(HORIZON + 1):
        stack = [i for i in stack if ends[i] > moment]
        for i in order:
            if begin[i] == moment:
                if stack and ends[i] > ends[stack[-1]]:
                    ends[i] = ends[stack[-1]]
                    crossings += 1
                stack.append(i)
        if stack:
            owners[moment] = stack[-1]
    return owners, crossings


@for_each_seed(300)
def test_innermost_agrees_with_a_stack_also_when_intervals_cross(seed: int) -> None:
    rng = random.Random(seed)
    begin, end = random_pairs(rng, 12)
    rank = [rng.randrange(3) for _ in begin]
    got = intervals.innermost(begin, end, rank)
    owners = {
        t: owner
        for low, high, owner in zip(got.begin.tolist(), got.end.tolist(), got.owner.tolist(), strict=True)
        for t in range(low, high)
    }
    expected, crossings = brute_innermost(begin, end, rank)
    assert owners == expected
    assert got.crossings == crossings
    assert (got.begin[1:] >= got.end[:-1]).all()


def test_nested_intervals_by_hand() -> None:
    #           step       region    call     blocked   next region
    got = intervals.innermost([0, 10, 20, 25, 60], [100, 50, 40, 40, 100])
    rows = list(zip(got.begin.tolist(), got.end.tolist(), got.owner.tolist(), strict=True))
    assert rows == [(0, 10, 0), (10, 20, 1), (20, 25, 2), (25, 40, 3), (40, 50, 1), (50, 60, 0), (60, 100, 4)]
    assert got.crossings == 0


def test_a_crossing_child_is_cut_at_its_parents_end() -> None:
    got = intervals.innermost([0, 10], [20, 30])
    rows = list(zip(got.begin.tolist(), got.end.tolist(), got.owner.tolist(), strict=True))
    assert rows == [(0, 10, 0), (10, 20, 1)]
    assert got.crossings == 1


def test_equal_intervals_belong_to_the_higher_rank() -> None:
    assert intervals.innermost([0, 0], [5, 5], [7, 1]).owner.tolist() == [0]
    assert intervals.innermost([0, 0], [5, 5], [1, 7]).owner.tolist() == [1]


def test_nothing_is_nothing() -> None:
    empty = intervals.union([], [])
    assert len(empty) == 0
    assert empty.measure() == 0
    assert len(intervals.innermost([], []).begin) == 0
    assert len(intervals.innermost([3], [3]).begin) == 0
    assert intervals.complement(empty, 2, 5).begin.tolist() == [2]
    assert intervals.covered_before(empty, [1, 2]).tolist() == [0, 0]
    assert intervals.subtract(empty, empty).measure() == 0
