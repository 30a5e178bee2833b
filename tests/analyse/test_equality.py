"""Stated results: which differences are real, and what a comparison makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from profiler.agent.results import describe_result
from profiler.analyse.comparability import SideRuns, compare_results, find_mismatches
from profiler.analyse.comparison import compare
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import ResultComparison
from profiler.report.notices import mismatch, same_results, uncompared_results
from profiler.run.model import StatedResult
from profiler.run.tables import result_positions
from tests.fakes.sentences import method, mismatches
from tests.recorded.directories import info


def stated(value: Any, *, name: str = "x", **options: Any) -> StatedResult:
    """A result as it is loaded after `profiler.result` has stored it."""
    options = {"rtol": 1e-3, "atol": 1e-6, "margins": None} | options
    line = describe_result(name, value, **options)
    return StatedResult(**{**line, "values": tuple(line["values"]), "margins": tuple(line["margins"])})


def side(label: str, *runs: Sequence[StatedResult], **facts: Any) -> SideRuns:
    return SideRuns(
        label, "", tuple(Analysis(info(facts=facts), {}, {}, {}, results=tuple(results)) for results in runs), None
    )


def one(before: Any, after: Any, **options: Any) -> ResultComparison:
    """The comparison of one result."""
    (result,) = compare_results([side("a", [stated(before, **options)]), side("b", [stated(after, **options)])])
    return result


@pytest.mark.parametrize(
    ("before", "after", "options", "different"),
    [
        (1.0, 1.0005, {}, 0),
        (1.0, 1.002, {}, 1),
        (-1.0, 1.0, {}, 1),
        (0.0, 1e-7, {}, 0),
        (0.0, 1e-3, {"atol": 0.01}, 0),
        (float("nan"), float("nan"), {}, 0),
        (float("nan"), 1.0, {}, 1),
        (float("inf"), float("inf"), {}, 0),
        (float("inf"), float("-inf"), {}, 1),
        ([1, 2, 3], [1, 2, 3], {}, 0),
        ([1, 2, 3], [1, 5, 4], {}, 2),
        ([1000], [1001], {"rtol": 0.5}, 1),  # integers are equal or not
        ([1 << 60], [(1 << 60) + 1], {}, 1),
        ([1, 2], [1.0, 2.0001], {}, 0),
    ],
)
def test_tolerances(before: Any, after: Any, options: dict[str, Any], different: int) -> None:
    result = one(before, after, **options)
    assert (result.difference.different if result.difference else 0) == different
    assert result.are_same == (not different)


@pytest.mark.parametrize(("gaps", "same"), [((0.001, 0.001), True), ((0.001, 0.5), False), ((0.5, 0.001), False)])
def test_a_near_tie_may_go_either_way_where_both_sides_see_it(gaps: tuple[float, float], same: bool) -> None:
    before, after = (stated([5, index], atol=0.01, margins=[1, gap]) for index, gap in zip((7, 8), gaps, strict=True))
    (result,) = compare_results([side("a", [before]), side("b", [after])])
    assert result.are_same == same
    assert result.near_ties == same
    assert same_results([result]) == ("x 1 of 2 (1 near tie)" if same else "")


def test_margins_of_one_side_are_enough() -> None:
    before, after = stated([5, 7], atol=0.01, margins=[1, 0.001]), stated([5, 8], atol=0.01)
    (result,) = compare_results([side("a", [before]), side("b", [after])])
    assert result.are_same


def test_runs_of_different_lengths_are_compared_as_far_as_both_go() -> None:
    values = [stated(float(number)) for number in range(5)]
    (result,) = compare_results([side("a", values[:2], values), side("b", values[:4])])
    assert result.are_same
    assert (result.compared, result.runs) == (2, 2)


def test_every_run_is_compared_and_the_worst_is_named() -> None:
    good, bad = [stated([1, 2, 3])], [stated([1, 9, 9])]
    again = replace(side("b", good), again=side("", bad).light)
    (result,) = compare_results([side("a", good, good), again])
    assert (result.side, result.runs) == ("b", 3)
    assert result.difference is not None
    assert (result.difference.different, result.difference.position, result.difference.values) == (2, 1, (2, 9))


def test_another_number_of_values_is_a_difference() -> None:
    before, after = [stated([1, 2]), stated([1, 2, 3])], [stated([1, 2]), stated([1, 2])]
    sides = [side("a", before), side("b", after)]
    (reason,) = find_mismatches(sides)
    expected = "result x: 3 of 5 values of b differ from the first run (2 instead of 3 values of call 2)"
    assert mismatch(reason) == expected


def test_integers_that_are_not_stored_are_compared_by_their_checksum() -> None:
    numbers = np.arange(10_000)
    changed = numbers.copy()
    changed[min(set(range(10_000)) - set(result_positions(10_000, has_margins=False)))] = -7
    assert one(numbers, numbers).are_same
    result = one(numbers, changed)
    assert not result.are_same
    assert result.difference is not None
    assert result.difference.values is None


def test_results_that_differ_make_sides_not_comparable() -> None:
    sides = [side("a", [stated([3, 1, 2])]), side("b", [stated([3, 4, 2])])]
    done = compare(sides, anyway=True)
    assert (done.comparable, done.forced) == (False, True)
    assert mismatches(done) == ("result x: 1 of 3 values of b differ from the first run (value 1 is 4 instead of 1)",)
    assert find_mismatches(sides, ignored=("tokens_per_chunk",)) == ()
    facts = [side("a", [stated(1)], seed=1), side("b", [stated(2)], seed=2)]
    assert mismatches(compare(facts)) == ("seed: 1 against 2",), "other results are what other facts lead to"


def test_sides_that_state_nothing() -> None:
    none = compare([side("a", ()), side("b", ())])
    assert none.results == ()
    assert any("they state no results (profiler.result)" in sentence for sentence in method(none))
    half = compare([side("a", ()), side("b", [stated(1)])])
    assert half.comparable
    assert uncompared_results(half.results) == "a states no result x"
    assert not half.results[0].are_same


def test_a_side_is_not_the_same_if_one_of_its_runs_states_nothing() -> None:
    (result,) = compare_results([side("a", [stated(1)], [stated(1)]), side("b", [stated(1)], ())])
    assert (result.are_same, result.missing) == (False, ("b",))


def test_large_arrays_that_differ_outside_one_column_are_different() -> None:
    before = np.zeros((4096, 1024), np.float32)
    after = np.ones_like(before)
    after[:, 0] = 0
    result = one(before, after)
    assert result.difference is not None
    assert result.difference.different > 0.99 * result.compared
    assert (result.compared, result.stated) == (4096, 4096 * 1024)
    assert same_results([one(before, before)]) == "x 4,096 of 4,096 compared of 4,194,304 stated"


def test_each_index_with_a_margin_is_compared() -> None:
    before, margins = np.arange(5000), np.full(5000, 5.0)
    after = before.copy()
    after[1::2] += 1
    result = one(before, after, margins=margins)
    assert result.difference is not None
    assert (result.difference.different, result.difference.position) == (2500, 1)


@pytest.mark.parametrize("count", [1, 4096, 4097, 5000, 1_000_003])
def test_stored_positions_ascend_and_reach_everywhere(count: int) -> None:
    positions = np.array(result_positions(count, has_margins=False))
    assert len(positions) == min(count, 4096)
    assert positions[0] >= 0
    assert positions[-1] < count
    assert (np.diff(positions) > 0).all()
    assert np.diff(positions, append=count).max() <= 2 * -(-count // len(positions))
