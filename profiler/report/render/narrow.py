"""Tables on a phone: which are too wide for one and are stacked, a row a small card, and the bar of such a row."""

from __future__ import annotations

from typing import Final

from profiler.report.blocks import Cell, Column, Table, absent_row, is_place

_ROOM: Final = 354
"""CSS pixels for a table on a small phone (390 less the page's margins)."""
# of page.css, at its narrowest: letters of 13 px, and what its rules keep free
_LETTER, _CODE, _HEAD_LETTER, _PADDING = 6.6, 186, 6.4, 14
_TEXT, _NAME, _NAME_WITH_NOTE, _SIDE = 88, 60, 98, 95
_PAIRS: Final = 4
_SLOT: Final = 24
"""Letters that a third of a phone's width holds in two lines."""


def stacked(table: Table) -> bool:
    """Whether `table` would hide some of its columns beyond the edge of a phone; two columns always find room."""
    if len(table.columns) < 3:
        return False
    rows = [row for row in table.rows if not absent_row(row)]
    return sum(_width(column, [row[at] for row in rows], at) for at, column in enumerate(table.columns)) > _ROOM


def _width(column: Column, cells: list[Cell], at: int) -> float:
    """The least that a column takes: numbers stay in one piece, text breaks between words."""
    head = max(map(len, column.title.split()), default=0) * _HEAD_LETTER
    widest = max(head, _SIDE if column.tone else 0)
    for cell in cells:
        if cell.code:
            widest = max(widest, _CODE)
        elif column.number:
            letters = max(map(len, (f"{cell.text} {cell.unit}", *cell.note.split(", "))))
            widest = max(widest, (12 if cell.missing else letters) * _LETTER)
        else:
            least = _TEXT if at else _NAME_WITH_NOTE if cell.note else _NAME
            widest = max(widest, least, _longest(cell.text) * _LETTER)
    return widest + (_PADDING if at else 0)


def brief(table: Table, at: int) -> bool:
    """Whether the words of a column are so short that they stand among a stacked row's numbers."""
    cells = [row[at] for row in table.rows if not absent_row(row)]
    return all(not cell.code and not cell.note and len(cell.text) <= _SLOT for cell in cells)


def briefs(table: Table) -> tuple[bool, ...]:
    """Of each column whether it is brief: once for all rows."""
    return tuple(brief(table, at) for at in range(len(table.columns)))


def _longest(text: str) -> int:
    return max(map(len, text.split()), default=0)


def layout(table: Table) -> str:
    """Classes of a stacked table: `ordered` where later columns name lines, each with the numbers behind it; `pairs`
    where four short cells make two by two."""
    later = any(is_place(cell) for row in table.rows for cell in row[1:])
    short = sum(column.number or brief(table, at) for at, column in enumerate(table.columns) if at)
    return " ".join(("stacks", *(["ordered"] if later else []), *(["pairs"] if short == _PAIRS else [])))


def share(table: Table, row: tuple[Cell, ...]) -> float | None:
    """What the bar of a stacked row shows, 0 to 1: its share, where the table has one column of them."""
    places = [at for at, column in enumerate(table.columns) if column.number and column.title.startswith("Share")]
    if len(places) != 1 or len(row) <= places[0]:
        return None
    cell = row[places[0]]
    if cell.missing or cell.unit != "%" or cell.sort is None:
        return None
    return min(1.0, max(0.0, cell.sort))
