"""Blocks: footnotes of tables, scales of bars."""

from __future__ import annotations

from profiler.report.blocks import Bar, Cell, Column, Segment, StackedBars, Table, row_missing, side_tone


def table(*rows: tuple[Cell, ...]) -> Table:
    return Table("t", (Column("a"), Column("b"), Column("c")), rows)


def test_reasons_are_marked_once_in_order_of_appearance() -> None:
    rows = [(Cell("x"), Cell("", missing=f"r{i % 30}"), Cell("1")) for i in range(60)]
    marks = table(*rows).footnotes()
    assert list(marks)[:2] == ["r0", "r1"]
    assert list(marks.values())[:2] == ["a", "b"]
    assert list(marks.values())[25:28] == ["z", "aa", "ab"]
    assert len(marks) == 30


def test_a_row_absent_for_one_reason_needs_no_footnote() -> None:
    absent = (Cell("x"), Cell("", missing="why"), Cell("", missing="why"))
    mixed = (Cell("x"), Cell("", missing="why"), Cell("", missing="other"))
    assert row_missing(absent) == "why"
    assert row_missing(mixed) == ""
    assert row_missing((Cell("x"), Cell("", missing="why"), Cell("3"))) == ""
    assert list(table(absent).footnotes(empty_rows=False)) == []
    assert list(table(absent).footnotes()) == ["why"]


def test_bars_share_one_scale_unless_they_are_shares() -> None:
    long = Bar("long", (Segment("s", 8.0, "8", "c1"), Segment("t", 2.0, "2", "c2")))
    short = Bar("short", (Segment("s", 1.0, "1", "c1"),))
    assert StackedBars("", (long, short)).scale(short) == 10.0
    assert StackedBars("", (long, short), share=True).scale(short) == 1.0
    assert StackedBars("", (long, short)).legend() == (("s", "c1"), ("t", "c2"))


def test_tones_of_sides_repeat_rather_than_end() -> None:
    assert side_tone(0) == side_tone(6) == "s1"
