"""Draws with characters, safely for any terminal and for Markdown: text, tables, bars, curves. Lays out waterfalls."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from profiler.core.terminal import ascii_text, plain
from profiler.core.units import count
from profiler.report.blocks import Flame, Frame, Lines, Slope, SlopeChart, Stair, Waterfall

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


EIGHTHS = " ▏▎▍▌▋▊▉"
LEVELS = "▁▂▃▄▅▆▇█"
_MARGIN = 0.03
"""Part of a waterfall's axis that is free at both ends, so that no mark is cut."""
_RANGE_ROOM = 0.15
"""Part of the span of all levels by which ranges may lengthen the axis on either side; wider ranges are cut."""
_SHORTEST_AXIS = math.log(1.1)
"""Noise around one level must not fill the width."""
_MOST_TICKS = 6
"""Labels for 1, 2 and 5 of each decade that fit an axis in half a column of a page; of more there are decades only."""
_MARKS = {"start": "◆", "gain": "█", "loss": "▓", "same": "░", "unknown": "▒", "total": "█", "range": "─"}
_ASCII_MARKS = {"start": "o", "gain": "#", "loss": "x", "same": "~", "unknown": "?", "total": "#", "range": "-"}


def bar(share: float, width: int, *, unicode: bool = True) -> str:
    """`share` of `width` characters, to an eighth of one; never empty for a share above 0."""
    share = min(max(share, 0.0), 1.0)
    if not unicode:
        return "#" * max(round(share * width), int(share > 0))
    full, eighths = divmod(max(round(share * width * 8), int(share > 0)), 8)
    return "█" * full + (EIGHTHS[eighths] if eighths else "")


def whole_percent(share: float | None) -> str:
    """`39%`, and `<1%` for a share that would round to 0; `?` for one that is not known."""
    if share is None:
        return "?"
    return f"{100 * share:.0f}%" if share >= 0.005 else "<1%"


_SHELL_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")


def command_lines(command: str, width: int) -> list[str]:
    """Return a command in lines of at most `width` characters that a shell reads as one, where its words allow it."""
    lines = [""]
    for word in _SHELL_WORD.findall(command):
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines[-1] += " \\"
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return [line for line in lines if line]


def spark(values: Sequence[float], top: float, width: int = 40, *, unicode: bool = True) -> str:
    """Return a curve in one line, `top` being full height; means where there are more values than characters."""
    if not values:
        return ""
    length = min(width, len(values))
    bounds = [round(index * len(values) / length) for index in range(length + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]
    marks = LEVELS if unicode else "_.-=*#"
    return "".join(
        marks[min(len(marks) - 1, max(0, int(mean / top * len(marks))))] if top else marks[0] for mean in means
    )


def round_step(least: float) -> float:
    """Return the next 1, 2, 2.5 or 5 of a decade: a step between ticks."""
    decade = 10.0 ** math.floor(math.log10(least))
    return decade * next(factor for factor in (1, 2, 2.5, 5, 10) if decade * factor >= least * (1 - 1e-9))


def tick(value: float) -> str:
    """Return a round number at an axis: 500, 20k, 1M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def span_text(values: Sequence[float], unit: str) -> str:
    """Return the lowest and the highest of values with their unit; nothing where there are none."""
    if not values:
        return ""
    return f"{count(min(values))} to {count(max(values))}{'' if unit in {'', '%'} else ' '}{unit}"


def line_rows(block: Lines, width: int = 40, *, unicode: bool = True) -> list[tuple[str, str, str, str]]:
    """Return panel, label, curve and range of every curve, then the levels."""
    curves = [(panel, curve) for panel in block.panels for curve in panel.curves]
    rows = []
    for panel, curve in curves:
        drawn = spark(curve.y, block.y_limit(panel), width, unicode=unicode)
        rows.append((panel.title, curve.label, drawn, span_text(curve.y, panel.y_label or block.y_label)))
    return rows + [(panel.title, level.label, "", level.text) for panel in block.panels for level in panel.levels]


_ROUNDING = 1e-9
"""Shares up to this one are errors of rounding in a frame that only calls others."""


def hottest(flame: Flame) -> Iterable[tuple[Frame, str]]:
    """Return at most ten frames, those with most self time, each with its self time as a share of the root."""
    ranked: list[tuple[float, str, Frame]] = []
    pending: list[tuple[Frame, str]] = [(flame.root, flame.root.label)]
    while pending:
        frame, path = pending.pop()
        ranked.append((frame.value - sum(child.value for child in frame.children), path, frame))
        pending += [(child, f"{path} > {child.label}") for child in frame.children]
    ranked.sort(key=lambda entry: (-entry[0], entry[1]))
    shares = ((frame, self_time / flame.root.value) for self_time, _, frame in ranked[:10] if self_time > 0)
    return [(frame, f"{share:.1%}") for frame, share in shares if share > _ROUNDING]


@dataclass(frozen=True, slots=True)
class PlacedStair:
    """One step of a waterfall; positions are shares of the axis, and None where there is nothing to place."""

    stair: Stair
    end: float | None
    left: float | None
    right: float | None
    """The bar between its two levels, the lower one first."""
    low: float | None
    high: float | None
    """Within the axis; a range that exceeds it is open at that end."""
    low_open: bool = False
    high_open: bool = False


@dataclass(frozen=True, slots=True)
class WaterfallLayout:
    """A waterfall that only has to be painted."""

    rows: tuple[PlacedStair, ...]
    ticks: tuple[tuple[float, str], ...]
    """Position and label."""


def waterfall_layout(block: Waterfall) -> WaterfallLayout:
    """Return positions of everything in `block`; empty where no level is known."""
    levels = [math.log(value) for stair in block.stairs for value in (stair.begin, stair.end) if value is not None]
    if not levels:
        return WaterfallLayout(tuple(PlacedStair(stair, None, None, None, None, None) for stair in block.stairs), ())
    begin, length = _axis(block, min(levels), max(levels))

    def position(value: float | None) -> float | None:
        return None if value is None else (math.log(value) - begin) / length

    rows = []
    for stair in block.stairs:
        ends = sorted(end for end in (position(stair.begin), position(stair.end)) if end is not None)
        left, right = (ends[0], ends[1]) if len(ends) == 2 else (None, None)
        low, high = position(stair.low), position(stair.high)
        low_open, high_open = low is not None and low < 0, high is not None and high > 1
        low, high = (None if value is None else min(max(value, 0.0), 1.0) for value in (low, high))
        rows.append(PlacedStair(stair, position(stair.end), left, right, low, high, low_open, high_open))
    ticks = tuple(((math.log(value) - begin) / length, tick(value)) for value in log_ticks(begin, length))
    return WaterfallLayout(tuple(rows), ticks)


def _axis(block: Waterfall, lowest: float, highest: float) -> tuple[float, float]:
    """Return the logarithm at which the axis begins, and its length: for all levels, and ranges as far as they fit."""
    if highest - lowest < _SHORTEST_AXIS:
        middle = (lowest + highest) / 2
        lowest, highest = middle - _SHORTEST_AXIS / 2, middle + _SHORTEST_AXIS / 2
    room = _RANGE_ROOM * (highest - lowest)
    ends = [math.log(value) for stair in block.stairs for value in (stair.low, stair.high) if value is not None]
    first, last = max(lowest - room, min((lowest, *ends))), min(highest + room, max((highest, *ends)))
    margin = _MARGIN * (last - first)
    return first - margin, last - first + 2 * margin


def log_ticks(begin: float, length: float) -> list[float]:
    """Return 1, 2 and 5 of each decade on an axis of logarithms; more digits where these are fewer than two."""
    first, last = math.floor(begin / math.log(10)), math.ceil((begin + length) / math.log(10))

    def values(digits: Iterable[float]) -> list[float]:
        every = (digit * 10.0**decade for decade in range(first, last + 1) for digit in digits)
        return [value for value in every if begin <= math.log(value) <= begin + length]

    ticks = values((1.0, 2.0, 5.0))
    if len(ticks) > _MOST_TICKS:
        return values((1.0,))
    if len(ticks) < 2:
        ticks = values(range(1, 10))
    return ticks if len(ticks) >= 2 else values(n / 10 for n in range(10, 100))


def waterfall_track(row: PlacedStair, width: int, *, unicode: bool = True) -> str:
    """Return one step in `width` characters: its range thin, its bar over it, a mark where it has no bar."""
    marks = _MARKS if unicode else _ASCII_MARKS
    cells = [" "] * width

    def fill(left: float | None, right: float | None, mark: str) -> None:
        if left is not None and right is not None:
            first = min(width - 1, int(left * width))
            end = max(first + 1, round(right * width))
            cells[first:end] = mark * (end - first)

    fill(row.low, row.high, marks["range"])
    fill(*((row.left, row.right) if row.left is not None else (row.end, row.end)), marks[row.stair.kind])
    return "".join(cells)


# ---------------------------------------------------------------- slope charts

_LABEL_ROW = 22.0
"""CSS pixels between two labels."""
_SLOPES_HEIGHT = 6.0 * _LABEL_ROW
"""The least height of a chart."""


@dataclass(frozen=True, slots=True)
class PlacedSlope:
    """A slope at its heights on both sides, in CSS pixels from above; None where a side has no value."""

    slope: Slope
    values: tuple[float | None, float | None]
    labels: tuple[float | None, float | None]
    """The same, apart so that labels do not overlap."""


def slope_layout(block: SlopeChart) -> tuple[float, tuple[PlacedSlope, ...]]:
    """Return the height of a slope chart, and its slopes."""
    rows = max(sum(slope.values[side] is not None for slope in block.slopes) for side in (0, 1)) if block.slopes else 0
    height = max(_SLOPES_HEIGHT, _LABEL_ROW * (rows + 1))
    logs = [math.log(value) for slope in block.slopes for value in slope.values if value]
    top, span = max(logs, default=0.0), max(max(logs, default=0.0) - min(logs, default=0.0), _SHORTEST_AXIS)

    def place(value: float | None) -> float | None:
        return (top - math.log(value)) / span * (height - _LABEL_ROW) + _LABEL_ROW / 2 if value else None

    first, last = ([place(slope.values[side]) for slope in block.slopes] for side in (0, 1))
    pairs = zip(block.slopes, first, last, _apart(first, height), _apart(last, height), strict=True)
    return height, tuple(PlacedSlope(slope, (a, b), (c, d)) for slope, a, b, c, d in pairs)


def _apart(places: Sequence[float | None], height: float) -> list[float | None]:
    """Return places moved so that they are a row apart, in their order and within the height."""
    known = sorted((place, index) for index, place in enumerate(places) if place is not None)
    moved, result = [place for place, _ in known], [*places]
    for at in range(1, len(moved)):
        moved[at] = max(moved[at], moved[at - 1] + _LABEL_ROW)
    for at in reversed(range(len(moved))):
        limit = moved[at + 1] - _LABEL_ROW if at + 1 < len(moved) else height - _LABEL_ROW / 2
        moved[at] = min(moved[at], limit)
    for (_, index), place in zip(known, moved, strict=True):
        result[index] = place
    return result


@dataclass(frozen=True, slots=True)
class TextColumn:
    """Head of a column in a terminal."""

    title: str
    number: bool = False
    """Align right."""
    wrap: bool = True
    overflow: Literal["fold", "ellipsis"] = "fold"
    """How a word that is longer than the column is shown."""
    width: int | None = None
    ratio: int | None = None


class Terminal:
    """A terminal of some width, which may be limited to ASCII."""

    def __init__(self, width: int, *, unicode: bool = True) -> None:
        self.width = width
        self.unicode = unicode

    def text(self, text: str, style: str = "") -> Text:
        """Return text that neither commands the terminal nor breaks its encoding; markup in it stays text."""
        from rich.text import Text

        text = plain(text)
        return Text(text if self.unicode else ascii_text(text), style)

    def table(self, columns: Sequence[TextColumn], rows: Iterable[Iterable[Text | str]]) -> Table:
        """Return a table with a line below its head, which is left out where no column has a title."""
        from rich import box
        from rich.table import Table

        table = Table(
            box=box.SIMPLE_HEAD if self.unicode else box.ASCII,
            show_header=any(column.title for column in columns),
            pad_edge=False,
            show_edge=False,
        )
        for column in columns:
            table.add_column(
                self.text(column.title, "dim"),
                justify="right" if column.number else "left",
                overflow="crop" if column.overflow == "ellipsis" and not self.unicode else column.overflow,
                no_wrap=not column.wrap,
                width=column.width,
                ratio=column.ratio,
            )
        for row in rows:
            table.add_row(*(self.text(cell) if isinstance(cell, str) else cell for cell in row))
        return table


def is_unicode(console: Console) -> bool:
    """Tell whether the console's encoding has more than ASCII."""
    return (console.encoding or "").lower().startswith("utf")
