"""Renders a Report as one HTML file that needs no network, and no script to be read."""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler.core.terminal import plain
from profiler.report import blocks as b
from profiler.report.render import figures
from profiler.report.render.drawing import slope_layout, waterfall_layout, whole_percent

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup

PAGE = Path(__file__).parent / "page"
TABLE_ROWS = 8
"""Rows of a table that a page shows at first, at most; page.css hides the others."""
NAMED_ROWS = 4
"""The same for a table of names and their values, such as the environment."""
LOCATION_ROWS = 4
"""The same for a table with lines of code, whose rows are two or three lines high."""
LEAST_ROWS = 3
SMALL_ROW: Final = 0.05
"""Of the largest value of a column of bars: a page hides rows below it at first, from the fourth row on."""
TINTS = 6
"""Tints of a flame graph's frames."""
LEANS = 3
"""Steps of a difference's colour on either side of no change."""
MAX_FRAMES = 900
"""Frames of one flame graph; about 200 bytes each in a page, so that three graphs stay far below 2 MB."""

FOLDED: Final = 0.99
"""Share of a frame's time that its only callee must take to share its box: at 1,000 pixels, the rest is 10 pixels wide
at most."""
MAX_CHAIN: Final = 30
"""Frames in one box: so many lines fit a screen when the box is opened."""

_COMMENT: Final = re.compile(r"/\*(?s:.*?)\*/|^\s*// .*$", re.MULTILINE)
"""Of a style sheet or a script: a page does without."""
_NAME_PARTS: Final = re.compile(r"(?<=[/_])(?=[^/_])|(?<=\w)(?=\.[^\W\d])")
"""Where a path or a dotted name may break into two lines."""

# Tables on a small phone, in CSS pixels of page.css at its narrowest: a phone of 390 less the page's margins; the width
# of a letter at 13 px, of a path, of a letter in a head; padding; least widths of text, names and sides.
_PHONE: Final = 354
_HALF_PAGE: Final = 638
_LETTER, _CODE, _HEAD_LETTER, _PADDING = 6.6, 186, 6.4, 14
_TEXT, _NAME, _NAME_WITH_NOTE, _SIDE = 88, 60, 98, 95
_PAIRS: Final = 4
_LONGEST_UNIT: Final = 9
"""Letters; page.css has a class for each length."""
_SLOT: Final = 24
"""Letters that a third of a phone's width holds in two lines."""


def render(report: b.Report) -> str:
    """Return the complete page; the same report gives the same bytes."""
    template, css, js = _page()
    footnotes: dict[str, int] = {}
    """Each reason why something was not measured, in the order of the page, and its number."""
    text: str = template.render(report=report, css=css, js=js, footnotes=footnotes)
    return "\n".join(line for line in (row.strip() for row in text.splitlines()) if line) + "\n"


@functools.cache
def _page() -> tuple[jinja2.Template, Markup, Markup]:
    """Return the template of a page, its style sheet and its script; compiling it takes longer than rendering."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain(value) if type(value) is str else value,
    )
    environment.globals.update(
        kind_of=lambda block: type(block).__name__,
        draw_lines=lambda block: zip(block.panels, map(Markup, figures.lines(block)), strict=True),
        draw_intervals=lambda block: Markup(figures.intervals(block)),
        fall_layout=waterfall_layout,
        flame_layout=flame_layout,
        slope_layout=slope_layout,
        flame_tint=flame_tint,
        timeline_cells=figures.CELLS,
        timeline_data=lambda chart: Markup(figures.script_data(chart)),
        timeline_paths=figures.paths,
        timeline_rows=figures.text_rows,
        timeline_ticks=figures.ticks,
        row_missing=b.row_missing,
        parts=_NAME_PARTS.split,
        split_path=split_path,
        is_wide=is_wide,
        spans_columns=spans_columns,
        # a wide section between others would leave holes above it
        wide_first=lambda sections: sorted(sections, key=lambda section: not spans_columns(section)),
        phone_layout=phone_layout,
        share_of_row=share_of_row,
        whole_percent=whole_percent,
        nothing=b.NOTHING,
        rows_at_first=rows_at_first,
        has_several_tables=has_several_tables,
        unit_widths=unit_widths,
    )
    files = ("page.css", "page.js", "timeline.js")
    css, *scripts = (_COMMENT.sub("", (PAGE / name).read_text(encoding="utf-8")) for name in files)
    return environment.get_template("page.html.j2"), Markup(css), Markup("\n".join(scripts))


def split_path(cell: b.Cell) -> tuple[str, str]:
    """Split a location into its folders, which a narrow table leaves out, and the rest; other code is all rest."""
    folders, slash, name = cell.text.rpartition("/") if cell.is_location else ("", "", cell.text)
    return folders + slash, name


def rows_at_first(table: b.Table, *, is_one_of_several: bool = False) -> int:
    """Tell how many rows of a table a page shows before a reader asks for all of them.

    :param is_one_of_several: its section has such a table for each side.
    """
    first = _most_rows(table, is_one_of_several)
    return first if len(table.rows) > first + 1 else len(table.rows)  # a link is as high as the one row that it hides


def _most_rows(table: b.Table, is_one_of_several: bool) -> int:
    if len(table.columns) == 2 and not table.columns[1].number:
        return NAMED_ROWS
    most = TABLE_ROWS
    if _has_code(table):
        most = LEAST_ROWS if is_one_of_several else LOCATION_ROWS
    bars = [index for index, column in enumerate(table.columns) if column.bar]
    sizes = [row[bars[0]].sort or 0.0 for row in table.rows[:most] if not b.row_missing(row)] if bars else []
    if len(bars) != 1 or sizes != sorted(sizes, reverse=True):
        return most
    return max(LEAST_ROWS, sum(size >= SMALL_ROW * sizes[0] for size in sizes))


def _has_code(table: b.Table) -> bool:
    return any(cell.is_location or cell.source for row in table.rows for cell in row)


def has_several_tables(section: b.Section) -> bool:
    """Tell whether a section has several tables with lines of code, as where sides have few lines in common."""
    return sum(isinstance(block, b.Table) and _has_code(block) for block in section.blocks) > 1


def unit_widths(table: b.Table) -> tuple[str, ...]:
    """Return the class of each column for its longest unit, so that its numbers align; empty without units."""
    columns = zip(*table.rows, strict=True) if table.rows else ((),) * len(table.columns)
    longest = [max((len(cell.unit) for cell in column if not cell.missing), default=0) for column in columns]
    return tuple(f" w{min(length, _LONGEST_UNIT)}" if length else "" for length in longest)


@dataclass(frozen=True, slots=True)
class PhoneLayout:
    """How a table is drawn on a phone that it is too wide for: as a stack of small cards, one per row."""

    classes: str
    """CSS classes: `ordered` where later columns name lines of code, each with the numbers behind it; `pairs` where
    four short cells make two by two."""
    short: tuple[bool, ...]
    """Per column: its text is so short that it stands among the numbers."""


def phone_layout(table: b.Table) -> PhoneLayout | None:
    """Return the layout for a phone; None for a table that fits, as tables of two columns always do."""
    if len(table.columns) < 3 or _table_width(table) <= _PHONE:
        return None
    short = tuple(
        all(not cell.code and not cell.note and len(cell.text) <= _SLOT for cell in cells)
        for _, cells in _columns(table)
    )
    ordered = any(cell.is_location for row in table.rows for cell in row[1:])
    pairs = sum(column.number or short[index] for index, column in enumerate(table.columns) if index) == _PAIRS
    return PhoneLayout(" ".join(["stacks", *["ordered"] * ordered, *["pairs"] * pairs]), short)


def is_wide(block: b.Block) -> bool:
    """Tell whether a block spans both columns of a group on a wide page."""
    return isinstance(block, b.TimelineChart | b.Waterfall) or (
        isinstance(block, b.Table) and _table_width(block) > _HALF_PAGE
    )


def spans_columns(section: b.Section) -> bool:
    """Whether all of a section spans both columns of its group: it begins with a wide block, or has a waterfall, whose
    height would leave a hole in the other column above the wide table that follows."""
    return is_wide(section.blocks[0]) or any(isinstance(block, b.Waterfall) for block in section.blocks)


def _columns(table: b.Table) -> Iterator[tuple[b.Column, list[b.Cell]]]:
    rows = [row for row in table.rows if not b.row_missing(row)]
    yield from ((column, [row[index] for row in rows]) for index, column in enumerate(table.columns))


def _table_width(table: b.Table) -> float:
    """Return the least width of a table in CSS pixels."""
    return sum(_min_width(column, cells, first=not index) for index, (column, cells) in enumerate(_columns(table)))


def _min_width(column: b.Column, cells: list[b.Cell], *, first: bool) -> float:
    """Return the least width of a column: numbers stay in one piece, text breaks between words."""
    unit = max((len(cell.unit) for cell in cells), default=0) if column.number else 0
    width = max(_longest_word(column.title) * _HEAD_LETTER + unit * _LETTER, _SIDE if column.tone else 0)
    for cell in cells:
        if cell.code:
            width = max(width, _CODE)
        elif column.number:
            letters = max(map(len, (f"{cell.text} {cell.unit}", cell.interval, cell.note)))
            width = max(width, (12 if cell.missing else letters) * _LETTER)
        else:
            minimum = _TEXT if not first else _NAME_WITH_NOTE if cell.note else _NAME
            width = max(width, minimum, _longest_word(cell.text) * _LETTER)
    return width + (0 if first else _PADDING)


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def share_of_row(table: b.Table, row: tuple[b.Cell, ...]) -> float | None:
    """Return the length of a card's bar, 0 to 1: its share, in a table with one column of bars."""
    shares = [index for index, column in enumerate(table.columns) if column.bar]
    if len(shares) != 1 or len(row) <= shares[0]:
        return None
    cell = row[shares[0]]
    return min(1.0, max(0.0, cell.sort)) if not cell.missing and cell.unit == "%" and cell.sort is not None else None


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A box of a flame graph: `left` and `width` are shares of the root, `depth` counts boxes from the root at 0."""

    frames: tuple[b.Frame, ...]
    """One frame, or a chain of calls in which each function spends its time in the next one."""
    depth: int
    left: float
    width: float

    @property
    def label(self) -> str:
        """`main`, `main → train`, `main → 3 more → step`"""
        first, last, more = self.frames[0].label, self.frames[-1].label, len(self.frames) - 2
        return first if more < 0 else f"{first} → {last}" if not more else f"{first} → {more} more → {last}"

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the label, the value, and a line for each frame: of a chain with its name."""
        names = [""] if len(self.frames) == 1 else [frame.label for frame in self.frames]
        parts = zip(names, self.frames, strict=True)
        places = ("  ".join(filter(None, (name, frame.where, frame.source))) for name, frame in parts)
        return self.label, self.frames[0].text, *filter(None, places)


def flame_layout(root: b.Frame, limit: int = MAX_FRAMES) -> tuple[Rectangle, ...]:
    """Return boxes of the widest frames, callers before callees; a chain of calls is one box.

    Breadth first by width: stacks may be of any depth, and the narrowest frames are left out.
    """
    if root.value <= 0:
        return ()
    level = [Rectangle((root,), 0, 0.0, 1.0)]
    placed: list[Rectangle] = []
    while level:
        placed += level
        children = []
        for parent in level:
            left = parent.left
            for child in parent.frames[-1].children:
                width = child.value / root.value
                children.append(Rectangle(_chain(child), parent.depth + 1, left, width))
                left += width
        children.sort(key=lambda rectangle: -rectangle.width)
        level = sorted(children[: max(0, limit - len(placed))], key=lambda rectangle: rectangle.left)
    return tuple(placed)


def _chain(frame: b.Frame) -> tuple[b.Frame, ...]:
    """Return the frame and those below it, as long as each has one callee with the same time and colour."""
    chain = [frame]
    while len(chain) < MAX_CHAIN and len(frame.children) == 1:
        (child,) = frame.children
        if child.value < FOLDED * chain[0].value or round(child.lean * LEANS) != round(frame.lean * LEANS):
            break
        chain.append(child)
        frame = child
    return tuple(chain)


def flame_tint(frame: b.Frame, difference: bool) -> str:
    """Return the CSS class of a frame's colour: by its file, or in a difference by its lean."""
    if difference:
        return f"lean{round(frame.lean * LEANS)}"
    file = frame.where.rpartition(":")[0]
    # crc32 instead of hash(): the same in every process
    return f"t{zlib.crc32(file.encode('utf-8', 'replace')) % TINTS}" if file else "tnone"
