"""Cells: numbers with units apart, missing with its reason, text that commands nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model.comparison import Ratio
from profiler.analyse.model.measures import Measure
from profiler.report import table as q
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


_Item = tuple[Site, float]
_LINE, _TIME = (
    q.Field[_Item]("Line", lambda item: q.site_cell(item[0])),
    q.Field[_Item]("Time", lambda item: q.seconds_cell(item[1]), number=True),
)


def _sides() -> tuple[ReportSide, ReportSide]:
    slow, fast = hook_samples.comparison().sides
    return ReportSide.from_side(slow, "s1"), ReportSide.from_side(fast, "s2")


def _key(item: _Item) -> q.RowKey:
    return q.row_key(item[0])


def _rows(*items: list[_Item]) -> list[list[str]]:
    table = q.sides_table("times", list(zip(_sides(), items, strict=True)), _key, (_LINE,), (_TIME,))
    return [[row[0].text, row[0].note, *(cell.one_line() for cell in row[1:])] for row in table.rows]


def test_rows_of_both_sides_come_by_their_part_of_the_largest_on_their_side() -> None:
    """What is largest on a fast side stands beside what is largest on a slow one."""
    a, b, c, d = (Site(f"{name}.py", 1, "<module>") for name in "abcd")
    assert _rows([(a, 9.0), (b, 8.0), (c, 1.0)], [(d, 0.03), (c, 0.01)]) == [
        ["a.py:1", "", "9.00 s", "–"], ["d.py:1", "", "–", "30.0 ms"],
        ["b.py:1", "", "8.00 s", "–"], ["c.py:1", "", "1.00 s", "10.0 ms"],
    ]  # fmt: skip


def test_lines_that_moved_match_by_their_text_and_say_where_they_are_on_each_side() -> None:
    read, log = "batch = next(batches)", "print(loss)"
    before = [(Site("train.py", 40, "main", read), 9.0), (Site("train.py", 50, "main", log), 1.0)]
    after = [(Site("train.py", 41, "main", read), 3.0), (Site("train.py", 50, "main", log), 1.0)]
    assert _rows(before, after) == [
        ["train.py:40", f"main, line 41 in {_sides()[1].label}", "9.00 s", "3.00 s"],
        ["train.py:50", "main", "1.00 s", "1.00 s"],
    ]


def test_lines_of_equal_text_match_in_their_order_or_by_their_number() -> None:
    first, second, third = (Site("train.py", line, "<module>", "loss.item()") for line in (10, 20, 21))
    assert [row[2:] for row in _rows([(second, 9.0), (first, 1.0)], [(third, 3.0), (first, 2.0)])] == [
        ["9.00 s", "3.00 s"], ["1.00 s", "2.00 s"],
    ]  # fmt: skip
    assert [row[2:] for row in _rows([(second, 9.0), (first, 1.0)], [(second, 3.0)])] == [
        ["9.00 s", "3.00 s"], ["1.00 s", "–"],
    ]  # fmt: skip


def test_no_item_is_lost_whose_name_equals_that_of_another() -> None:
    site = Site("train.py", 10, "<module>", "loss.item()")
    assert [row[2:] for row in _rows([(site, 9.0), (site, 1.0)], [(site, 3.0)])] == [
        ["9.00 s", "3.00 s"], ["1.00 s", "–"],
    ]  # fmt: skip


def test_sides_with_few_lines_in_common_have_a_table_each() -> None:
    slow, fast = _sides()

    def tables(*files: str) -> list[list[str]]:
        lines = {
            slow.label: [(Site("slow.py", line, "main", f"f({line})"), 1.0) for line in range(4)],
            fast.label: [(Site(file, line, "main", f"f({line})"), 1.0) for line, file in enumerate(files)],
        }
        together = q.in_one_table((slow, fast), lambda side: lines[side.label], _key)
        return [[side.label for side in sides] for sides in together]

    assert tables("slow.py", "slow.py", "fast.py", "fast.py") == [[slow.label, fast.label]]
    assert tables("slow.py", "fast.py", "fast.py", "fast.py") == [[slow.label], [fast.label]]
    assert q.in_one_table((), lambda _: [], _key) == []


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


def test_a_quotient_of_the_values_beside_it_does_not_say_how_these_were_made() -> None:
    """They are geometric means of the runs, medians, or values of one run."""
    cell = q.ratio_cell(None, Measure("x", 4.0, "1"), Measure("x", 2.0, "1"))
    assert (cell.text, cell.note) == ("0.500", "of these values")


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
