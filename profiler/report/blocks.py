"""The blocks that a report is made of: plain data, drawn by every renderer, knowing no metric.

A tone names a colour role, not a colour: `c1`..`c10` are categories, `idle` is the absence of work, `s1`..`s6`
are the sides of a comparison (s1 the baseline), `floor` is what stands behind them: a floor, a curve of training
beside held-out text. Renderers choose the colours. Text may hold anything, a script tag too: escaping is the
renderers' work.
"""

from __future__ import annotations

from dataclasses import dataclass

NOTHING = "–"
"""What stands in a cell that has nothing to say."""
SIDE_TONES = ("s1", "s2", "s3", "s4", "s5", "s6")


def side_tone(index: int) -> str:
    """Tone of the side at `index`; beyond the sixth they repeat."""
    return SIDE_TONES[index % len(SIDE_TONES)]


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a table or a key number: the number and its unit apart, so that columns align."""

    text: str
    unit: str = ""
    sort: float | None = None
    """What the column sorts by; None: by the text."""
    note: str = ""
    """Small print below the value: a range, a count."""
    title: str = ""
    """The full text where `text` was shortened: a path."""
    missing: str = ""
    """Not measured, and this is the reason; `text` is then shown nowhere."""
    code: bool = False
    """A path or a name from code."""
    strong: bool = False
    judged: str = ""
    """good | bad | open: how a verdict fell, as a colour beside its word."""


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Callout:
    """A sentence that must not be overlooked."""

    text: str
    tone: str = "info"
    """verdict | warning | info"""
    label: str = ""
    rest: str = ""
    """How the sentence goes on, in smaller type."""
    judged: str = ""
    """good | bad | open: how a verdict fell, as the colour of its label."""

    def whole(self) -> str:
        """The sentence in one piece."""
        return f"{self.text} {self.rest}".rstrip()


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """Something that the reader expects here and that was not measured."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list of sentences."""

    items: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Stat:
    """A key number: the one thing to read from across the room."""

    label: str
    value: Cell
    detail: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Stats:
    """A row of key numbers; the first one is the largest."""

    items: tuple[Stat, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """Head of a table's column; numbers align right."""

    title: str
    number: bool = False
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells; the first cell of a row names it."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def reasons(self, *, whole_rows: bool = True) -> dict[str, str]:
        """Why cells were not measured: reason -> mark (a, b, ...), in the order in which they come.

        :param whole_rows: False leaves out rows in which nothing was measured for one and the same reason.
        """
        rows = [row for row in self.rows if whole_rows or not absent_row(row)]
        found = dict.fromkeys(cell.missing for row in rows for cell in row if cell.missing)
        return {reason: _mark(index) for index, reason in enumerate(found)}


def is_place(cell: Cell) -> bool:
    """Whether it names a line of a file."""
    return cell.code and cell.text.rpartition(":")[2].isdecimal()


def absent_row(row: tuple[Cell, ...]) -> str:
    """The one reason why nothing of a row was measured; empty where something was."""
    reasons = {cell.missing for cell in row[1:]}
    return reasons.pop() if len(row) > 2 and len(reasons) == 1 else ""


def _mark(index: int) -> str:
    letter = chr(ord("a") + index % 26)
    return letter if index < 26 else _mark(index // 26 - 1) + letter


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar."""

    label: str
    value: float
    text: str
    """The value as it is shown: '62.1 ms'."""
    tone: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of segments that add up."""

    label: str
    segments: tuple[Segment, ...]
    text: str = ""
    """The total as it is shown."""


@dataclass(frozen=True, slots=True)
class StackedBars:
    """Bars over a common scale, or each filled to its own whole."""

    caption: str
    bars: tuple[Bar, ...]
    share: bool = False
    """True: every bar fills the width, and segments read as shares of it."""
    note: str = ""

    def scale(self, bar: Bar) -> float:
        """The value that fills the width: the bar's own whole, or the longest bar's."""
        totals = [sum(segment.value for segment in one.segments) for one in ((bar,) if self.share else self.bars)]
        return max(totals, default=0.0) or 1.0

    def legend(self) -> tuple[tuple[str, str], ...]:
        """Label and tone of every category in any bar, in order."""
        return tuple(dict.fromkeys((segment.label, segment.tone) for bar in self.bars for segment in bar.segments))


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a plot."""

    label: str
    tone: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    """Ends of the range of each point; with them the points are single measurements, drawn as dots."""

    def highest(self) -> float:
        """The largest value that is drawn; 0 where there is none."""
        return max((*self.y, *self.high), default=0.0)


@dataclass(frozen=True, slots=True)
class Level:
    """A level to hold curves against: a line across a panel."""

    label: str
    value: float
    text: str
    """The value as it is shown."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One of several small plots with the same axes; its title may be empty where it stands alone."""

    title: str
    curves: tuple[Curve, ...]
    levels: tuple[Level, ...] = ()
    y_label: str = ""
    """Its own unit, where panels have axes of their own."""

    def highest(self) -> float:
        """The largest value that is drawn; 0 where there is none."""
        return max((*(curve.highest() for curve in self.curves), *(level.value for level in self.levels)), default=0.0)


@dataclass(frozen=True, slots=True)
class Lines:
    """Small multiples: the same axes for every panel, unless they are of different units."""

    caption: str
    x_label: str
    y_label: str
    panels: tuple[Panel, ...]
    y_max: float | None = None
    """None: from the data. The axis begins at 0 always."""
    note: str = ""
    own_x: bool = False
    own_y: bool = False
    """True: every panel has an axis of its own."""
    numbered: bool = False
    """True: x are numbers of things, from 1 on; there is no 0 and nothing between them."""

    def top(self, panel: Panel) -> float:
        """The largest value on the axis of `panel`, which is common to all of them or its own."""
        panels = (panel,) if self.own_y else self.panels
        return self.y_max or max((one.highest() for one in panels), default=0.0)

    def legend(self) -> tuple[tuple[str, str], ...]:
        """Label and tone of every curve, in order; nothing where a panel has one curve, which its title names."""
        if max((len(panel.curves) for panel in self.panels), default=0) < 2:
            return ()
        return tuple(dict.fromkeys((curve.label, curve.tone) for panel in self.panels for curve in panel.curves))


@dataclass(frozen=True, slots=True)
class Interval:
    """One row of an interval plot: every observation, the estimate and its range."""

    label: str
    tone: str
    dots: tuple[float, ...]
    value: float
    low: float | None
    high: float | None
    text: str
    """The estimate as it is shown."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """Observations as dots, with estimate and range, a row each."""

    caption: str
    x_label: str
    rows: tuple[Interval, ...]
    log: bool = False
    reference: float | None = None
    """A line to compare with, drawn where it lies within the axis."""
    note: str = ""
    levels: tuple[Level, ...] = ()
    """Lines with a name to hold the rows against; the axis reaches to every one of them."""


@dataclass(frozen=True, slots=True)
class Stair:
    """One step of a waterfall: from one level to the next, by a factor."""

    label: str
    begin: float | None
    """The level that it starts from; None: nothing comes before it, and it is drawn as a mark."""
    end: float | None
    """The level that it reaches; None: not measured."""
    low: float | None
    high: float | None
    """Range of `end`."""
    text: str
    """What it is worth, as it is shown: '3.21×'; of one that was not measured, that."""
    span: str = ""
    """Its interval as it is shown, and what that says."""
    kind: str = "gain"
    """start | gain | loss | same (no difference seen) | unknown (no interval to tell) | total"""
    note: str = ""
    """What belongs to its name: what was left out or taken in with it."""

    def told(self) -> str:
        """The step in one piece of text, after its label."""
        return f"{self.text} ({self.span})" if self.span else self.text


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Levels on a logarithmic axis, one step after the other: equal lengths are equal factors."""

    caption: str
    unit: str
    """Of the axis."""
    stairs: tuple[Stair, ...]
    """In the order in which they are climbed."""
    note: str = ""

    def legend(self) -> tuple[tuple[str, str], ...]:
        """Label and kind of every kind of step that needs a word of explanation and is there, in order."""
        words = {"loss": "slower", "same": "no difference seen", "unknown": "too few rounds to tell"}
        found = {stair.kind for stair in self.stairs if stair.end is not None}
        known = tuple((words[kind], kind) for kind in words if kind in found)
        return (("faster", "gain"), *known) if known and "gain" in found else known


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a flame graph."""

    label: str
    value: float
    text: str
    """The value as it is shown, for the tooltip."""
    where: str = ""
    """file:line, in full."""
    lean: float = 0.0
    """-1..1: less or more than before; drawn as a colour where the graph is a difference."""
    children: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Flame:
    """A flame graph, root on top; width is `value`."""

    caption: str
    root: Frame
    difference: bool = False
    """True: colours show `lean`."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """A timeline that a page carries and hands to ui.perfetto.dev when its reader says so."""

    caption: str
    title: str
    """What the timeline is called there."""
    data: bytes
    """Chrome trace JSON, gzip."""
    note: str
    """What the click does."""
    otherwise: str
    """How to come by it where there is nothing to click."""


@dataclass(frozen=True, slots=True)
class Group:
    """Blocks side by side where there is room; each has a heading."""

    columns: tuple[tuple[str, tuple[Block, ...]], ...]


Block = (
    Text
    | Callout
    | NotMeasured
    | Items
    | Stats
    | Table
    | StackedBars
    | Lines
    | Intervals
    | Waterfall
    | Flame
    | Trace
    | Group
)


@dataclass(frozen=True, slots=True)
class Section:
    """A titled run of blocks; `brief` is what a terminal shows of it."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    brief: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What a renderer draws."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]
