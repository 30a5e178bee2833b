"""Cells: numbers with units apart, missing with its reason, text that commands nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model import Measure, Ratio
from profiler.report import table as q
from profiler.report.blocks import Cell
from profiler.report.model import ReportSide
from profiler.run.model import Site
from tests.fakes.sentences import note
from tests.report import hook_samples


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0.0621, "s", ("62.1", "ms")),
        (0.00041, "s", ("410", "µs")),
        (412e6, "bytes", ("412", "MB")),
        (20_840.0, "tokens/s", ("20.8k", "tokens/s")),
        (6000.0, "1/step", ("6,000", "")),
        (1.29, "x", ("1.29", "×")),
        (0.0, "s", ("0", "s")),
    ],
)
def test_quantity(value: float, unit: str, expected: tuple[str, str]) -> None:
    assert q.quantity(value, unit) == expected


def test_a_share_that_is_there_is_never_shown_as_zero() -> None:
    assert q.percent(0.00001) == "<0.1%"
    assert q.percent(0.0) == "0.0%"
    assert q.percent(0.3333) == "33.3%"


def test_rows_of_both_sides_come_by_their_part_of_the_largest_on_their_side() -> None:
    """What is largest on a fast side stands beside what is largest on a slow one."""
    slow, fast = hook_samples.comparison().sides
    sides = [ReportSide.from_side(side, tone) for side, tone in ((slow, "s1"), (fast, "s2"))]
    items = [(sides[0], [("a", 9.0), ("b", 8.0), ("c", 1.0)]), (sides[1], [("d", 0.03), ("c", 0.01)])]
    name = q.Field[tuple[str, float]]("Line", lambda item: Cell(item[0]))
    time = q.Field[tuple[str, float]]("Time", lambda item: q.seconds_cell(item[1]), number=True)
    table = q.sides_table("times", items, (name,), (time,))
    assert [[cell.one_line() for cell in row] for row in table.rows] == [
        ["a", "9.00 s", "–"], ["d", "–", "30.0 ms"], ["b", "8.00 s", "–"], ["c", "1.00 s", "10.0 ms"],
    ]  # fmt: skip


def test_missing_measure_shows_its_reason_and_no_number() -> None:
    cell = q.measure_cell(Measure("x", None, "s", reason=note("no GPU")), share=True, spread=True)
    assert (cell.missing, cell.text, cell.sort) == ("no GPU", "", None)
    assert q.measure_cell(Measure("x", None, "s")).missing == "no reason was recorded"


def test_range_names_the_unit_once_and_is_left_out_where_it_says_nothing() -> None:
    def note(low: float, high: float) -> str:
        return q.measure_cell(Measure("x", 1.0, "s", low, high), spread=True).note

    assert note(0.141, 0.142) == "141 to 142"
    assert note(0.0005, 0.002) == "500 µs to 2.00 ms"
    assert note(0.1411, 0.14112) == ""


def test_small_ratios_read_as_fractions() -> None:
    assert q.ratio_text(1 / 6000) == "1/6,000"
    assert q.ratio_text(49.8) == "49.8×"


def test_ratio_cell_says_where_no_difference_was_seen() -> None:
    cell = q.ratio_cell(Ratio("x", 1.0, 0.99, 1.01, 5, different=False))
    assert cell.note == "no difference seen"
    assert cell.interval == "0.990 to 1.01"


def test_an_interval_of_an_exact_counter_is_shown_only_where_it_says_something() -> None:
    narrow = Ratio("syncs_per_step", 1 / 5855, 1 / 5878, 1 / 5833, 5, different=True)
    cell = q.ratio_cell(narrow)
    assert (cell.text, cell.interval) == ("1/5,855", "")
    assert q.ratio_cell(replace(narrow, low=1 / 6000)).interval == "1/6,000 to 1/5,833"
    assert q.ratio_cell(replace(narrow, name="tokens_per_s")).interval == "1/5,878 to 1/5,833"


def test_the_ratio_of_an_exact_counter_is_that_of_the_numbers_beside_it() -> None:
    pairs = Ratio("syncs_per_step", 1 / 8775, 1 / 8779, 1 / 8771, 5, different=True)
    before, after = (Measure("syncs_per_step", value, "1/step") for value in (8770.0, 1.0))
    assert q.ratio_cell(pairs, before, after).text == "1/8,770"


def test_ratios_of_one_column_are_written_alike() -> None:
    assert [q.ratio_text(value) for value in (1 / 68.7, 0.120, 0.7)] == ["1/68.7", "1/8.33", "0.700×"]


def test_a_ratio_without_an_interval_gives_its_reason_where_the_first_screen_does_not() -> None:
    ratio = Ratio("x", 48.6, None, None, 2, different=False, reason=note("the pairs are equal"))
    two, one = q.ratio_cell(ratio), q.ratio_cell(replace(ratio, n=1))
    assert (two.text, two.note) == ("48.6", "the pairs are equal")
    assert (one.text, one.note) == ("48.6", ""), "the chip of the first screen says that it is one pair"


@pytest.mark.parametrize(
    ("before", "after", "text"), [(12.0, 0.0, "none left"), (0.0, 3.0, "new"), (0.0, 0.0, "same"), (4.0, 2.0, "0.500")]
)
def test_ratio_cell_without_a_ratio_falls_back_on_the_measures(before: float, after: float, text: str) -> None:
    no_ratio = Ratio("x", None, None, None, 0, different=False, reason=note("one side is zero"))
    assert q.ratio_cell(no_ratio, Measure("x", before, "1"), Measure("x", after, "1")).text == text


def test_ratio_cell_of_what_was_not_measured_has_the_reason() -> None:
    no_ratio = Ratio("x", None, None, None, 0, different=False, reason=note("no pairs"))
    assert q.ratio_cell(no_ratio, Measure("x", None, "1"), Measure("x", 1.0, "1")).missing == "no pairs"
    assert q.ratio_cell(None).missing


def test_paths_are_shortened_with_the_full_one_in_the_title() -> None:
    site = Site("/home/someone/" + "long/" * 40 + "project/train.py", 88, "step")
    cell = q.site_cell(site)
    assert cell.text == "…/project/train.py:88"
    assert cell.title == f"{site.file}:88"
    assert len(q.short_path("/a/" + "x" * 500 + "/" + "y" * 500)) <= 56
    assert q.site_cell(None).missing
