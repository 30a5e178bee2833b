"""Which tables are stacked on a phone, and what a stacked row shows besides its cells."""

from __future__ import annotations

import pytest

from profiler.report.blocks import Cell, Column, Report, Section, Table
from profiler.report.render import html, narrow

LINES = (Column("Line"), Column("In"), Column("Time a step", number=True), Column("Share", number=True))
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
MIXED = Table(
    "mixed", (Column("A"), Column("Share", number=True), Column("Share", number=True)), ((Cell("a"), ROW[3], ROW[3]),)
)


def lines(*rows: tuple[Cell, ...]) -> Table:
    return Table("lines", LINES, rows or (ROW,))


def test_only_what_is_too_wide_is_stacked() -> None:
    assert narrow.stacked(lines())
    assert not narrow.stacked(SMALL)
    assert not narrow.stacked(TWO), "two columns find room, whatever is in them"


@pytest.mark.parametrize(
    ("cell", "bar"),
    [(ROW[3], 0.575), (Cell("120", "%", sort=1.2), 1.0), (Cell("", missing="why"), None), (Cell("3", sort=3.0), None)],
)
def test_the_bar_is_the_share(cell: Cell, bar: float | None) -> None:
    row = (*ROW[:3], cell)
    assert narrow.share(lines(row), row) == bar


def test_of_several_shares_none_is_the_bar() -> None:
    assert narrow.share(MIXED, MIXED.rows[0]) is None


def test_short_words_stand_among_the_numbers() -> None:
    table = Table("t", (Column("Line"), Column("Mostly"), Column("In")), ((ROW[0], Cell("idle"), Cell("x" * 60)),))
    assert narrow.brief(table, 1)
    assert not narrow.brief(table, 2)
    assert not narrow.brief(lines(), 1), "names of code have a line of their own"


def test_a_line_further_on_keeps_its_numbers_behind_it() -> None:
    columns = (Column("a: line"), Column("a", number=True), Column("b: line"), Column("b", number=True))
    assert narrow.layout(Table("t", columns, ((ROW[0], ROW[2], ROW[0], ROW[2]),))) == "stacks ordered"
    assert narrow.layout(lines()) == "stacks", "a name of code is no line"


def test_four_short_cells_make_two_by_two() -> None:
    columns = (Column("Side"), *(Column(name, number=True) for name in "abcd"))
    assert narrow.layout(Table("t", columns, ((Cell("x"), *(ROW[2],) * 4),))) == "stacks pairs"


def test_the_page_names_each_number_of_a_stacked_row_and_drops_what_says_nothing() -> None:
    again = (Cell("", title="train.py:41"), Cell("–"), Cell("", sort=0.06), ROW[3])
    text = html.render(Report("t", "s", (Section("k", "k", (lines(ROW, again), SMALL)),)))
    stacked, plain = (one.split("</table>")[0] for one in text.split("<table")[1:])
    assert 'data-label="Time a step"' in stacked
    assert 'class="part" style="--part:57.5%"' in stacked
    assert stacked.count('role="row"') == 3, "laid out as a grid, rows would be none to readers who listen"
    assert stacked.count('role="columnheader"') == len(LINES)
    assert stacked.count('role="rowgroup"') == 2
    assert stacked.count('gone"') == 2
    assert '<span class="again">train.py:41</span></th>' in stacked, "wherever the row is sorted to, it has its name"
    assert "data-label" not in plain
    assert "role=" not in plain


def test_a_name_that_says_nothing_still_parts_its_card_from_the_one_above() -> None:
    text = html.render(Report("t", "s", (Section("k", "k", (lines(ROW, (Cell("–"), *ROW[1:])),)),)))
    assert text.count('gone"') == 0
    assert 'role="rowheader"><span class="n">–</span></th>' in text


def test_a_column_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def brief(_: Table, at: int) -> bool:
        looked.append(at)
        return False

    monkeypatch.setattr(narrow, "brief", brief)
    html.render(Report("t", "s", (Section("k", "k", (lines(*(ROW,) * 20),)),)))
    assert len(looked) <= 2 * len(LINES), "for the layout and for the cells, however many rows"
