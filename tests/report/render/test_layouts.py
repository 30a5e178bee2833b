"""Layouts of the page: tables on a phone, flame graphs, and slope charts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.report.blocks import Cell, Column, Frame, Report, Section, Slope, SlopeChart, Table
from profiler.report.render import html
from profiler.report.render.drawing import slope_layout
from profiler.report.render.html import MAX_CHAIN, flame_layout, phone_layout, share_of_row

LINES = (Column("Line"), Column("In"), Column("Time per step", number=True), Column("Share", number=True, bar=True))
ROW = (
    Cell("train.py:41", code=True),
    Cell("Linear.forward", code=True),
    Cell("60.0", "ms", sort=0.06),
    Cell("57.5", "%", sort=0.575, note="50.0 to 65.0"),
)
SMALL = Table(
    "small", (Column("A"), Column("B", number=True), Column("C", number=True)), ((Cell("a"), ROW[2], ROW[3]),)
)
TWO = Table("two", (Column("What"), Column("Value")), ((Cell("path"), Cell("/long" * 40)),))
SHARE = Column("Share", number=True, bar=True)
MIXED = Table("mixed", (Column("A"), SHARE, SHARE), ((Cell("a"), ROW[3], ROW[3]),))


def lines(*rows: tuple[Cell, ...]) -> Table:
    return Table("lines", LINES, rows or (ROW,))


def test_only_tables_that_are_too_wide_are_stacked() -> None:
    layout = phone_layout(lines())
    assert layout.classes == "stacks", "a name of code is no line"
    assert phone_layout(SMALL) is None
    assert phone_layout(TWO) is None, "two columns always find room"


@pytest.mark.parametrize(
    ("cell", "bar"),
    [(ROW[3], 0.575), (Cell("120", "%", sort=1.2), 1.0), (Cell("", missing="why"), None), (Cell("3", sort=3.0), None)],
)
def test_the_bar_is_the_share(cell: Cell, bar: float | None) -> None:
    row = (*ROW[:3], cell)
    assert share_of_row(lines(row), row) == bar
    assert share_of_row(MIXED, MIXED.rows[0]) is None, "a table with several shares has no bar"


NARROW = Table("t", (Column("Line"), Column("Mostly"), Column("In")), ((ROW[0], Cell("idle"), Cell("x" * 60)),) * 2)
LINE_TWICE = Table(
    "t",
    (Column("a: line"), Column("a", number=True), Column("b: line"), Column("b", number=True)),
    ((ROW[0], ROW[2], ROW[0], ROW[2]),),
)
FOUR = Table("t", (Column("Side"), *(Column(n * 14, number=True) for n in "abcd")), ((Cell("x"), *(ROW[2],) * 4),))


def test_how_cells_of_a_stacked_row_stand() -> None:
    assert phone_layout(NARROW).short == (False, True, False), "short texts stand among the numbers"
    assert phone_layout(LINE_TWICE).classes == "stacks ordered", "a later line keeps its numbers behind it"
    assert phone_layout(FOUR).classes == "stacks pairs", "four short cells make two by two"


def test_the_page_names_each_number_of_a_stacked_row_and_drops_empty_cells() -> None:
    again = (Cell("", title="train.py:41"), Cell("–"), Cell("", sort=0.06), ROW[3])
    text = html.render(Report("t", "s", (Section("k", "k", (lines(ROW, again), SMALL)),)))
    stacked, plain = (table.split("</table>")[0] for table in text.split("<table")[1:])
    assert 'data-label="Time per step"' in stacked
    assert 'class="part" style="--part:57.5%"' in stacked
    assert stacked.count('gone"') == 2
    assert '<span class="again">train.py:41</span></th>' in stacked, "sorting moves the row, which keeps its name"
    assert "data-label" not in plain
    nameless = html.render(Report("t", "s", (Section("k", "k", (lines(ROW, (Cell("–"), *ROW[1:])),)),)))
    assert nameless.count('gone"') == 0
    assert '<th scope="row">–</th>' in nameless, "it still separates its card"


def frame(value: float, *children: Frame) -> Frame:
    return Frame("f", value, "", children=children)


def test_frames_lie_within_their_caller_side_by_side() -> None:
    placed = flame_layout(frame(10.0, frame(6.0, frame(2.0)), frame(3.0)))
    assert [(r.depth, r.left, r.width) for r in placed] == [
        (0, 0.0, 1.0),
        (1, 0.0, 0.6),
        (1, pytest.approx(0.6), 0.3),
        (2, 0.0, 0.2),
    ]


def test_the_narrowest_frames_are_left_out_first() -> None:
    placed = flame_layout(frame(100.0, *(frame(float(i)) for i in range(13))), limit=4)
    assert [round(r.width * 100) for r in placed] == [100, 10, 11, 12]


def named(name: str, value: float, *children: Frame, lean: float = 0.0) -> Frame:
    return Frame(name, value, f"{value:g} s", f"{name}.py:1", f"{name}()", lean, children=children)


def test_a_chain_of_calls_is_one_box() -> None:
    leaf = named("d", 60.0)
    chain = named("a", 100.0, named("b", 99.5, named("c", 99.2, leaf)))
    _, box, below = flame_layout(Frame("all", 120.0, "", children=(chain,)))
    assert (box.label, box.depth, round(box.width, 2)) == ("a → 1 more → c", 1, 0.83)
    assert box.lines == ("a → 1 more → c", "100 s", "a  a.py:1  a()", "b  b.py:1  b()", "c  c.py:1  c()")
    assert (below.frames, below.label, below.depth, below.left) == ((leaf,), "d", 2, 0.0), "c has time of its own"
    assert below.lines == ("d", "60 s", "d.py:1  d()")
    two = flame_layout(Frame("all", 100.0, "", children=(named("a", 100.0, named("b", 100.0)),)))
    assert two[1].label == "a → b"


def test_a_box_has_one_colour() -> None:
    mixed = named("a", 100.0, named("b", 100.0, lean=1.0))
    assert [len(box.frames) for box in flame_layout(Frame("all", 100.0, "", children=(mixed,)))] == [1, 1, 1]


def test_a_stack_deeper_than_recursion_allows() -> None:
    deep = frame(1.0)
    for _ in range(5000):
        deep = Frame("f", 1.0, "", children=(deep,))
    assert flame_layout(deep, limit=10_000)[-1].depth == -(-5000 // MAX_CHAIN)
    assert flame_layout(frame(0.0)) == (), "nothing without time"


def slope(before: float | None, after: float | None) -> Slope:
    return Slope("f", (before, after), ("", ""), "", "")


def test_slopes_lie_on_a_logarithmic_scale_with_their_labels_apart() -> None:
    chart = SlopeChart("", (Column("a"), Column("b")), (slope(1.0, 0.01), slope(0.98, None), slope(0.1, 0.0001)))
    height, placed = slope_layout(chart)
    (top, middle), (second, absent), (low, bottom) = [each.values for each in placed]
    assert absent is None
    assert top is not None
    assert middle is not None
    assert second is not None
    assert low is not None
    assert bottom is not None
    assert 0 < top < second < low < middle < bottom < height
    assert middle - top == pytest.approx(bottom - middle), "a hundredth each"
    firsts = [each.labels[0] or 0.0 for each in placed]
    assert firsts[1] - firsts[0] >= 20, "labels of 20 pixels"
    assert [each.labels[1] for each in placed] == pytest.approx([middle, None, bottom])
    many = slope_layout(replace(chart, slopes=(slope(1.0, 1.0),) * 30))
    assert 0 < min(each.labels[0] or 0.0 for each in many[1]) < max(each.labels[1] or 0.0 for each in many[1]) < many[0]
