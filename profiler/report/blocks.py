"""Defines the blocks that a report is made of: plain data that every renderer can draw without knowing any metric.

A tone names the role of a colour and not the colour: `c1`..`c15` are categories, `idle` is the absence of work,
`s1`..`s6` are the sides of a comparison (s1 the baseline), `floor` is the background that others are compared with: the
launch-overhead floor, or training text beside held-out text. Renderers choose the colours. Texts may hold anything, a
script tag too: renderers escape them.
"""

from __future__ import annotations

from dataclasses import dataclass

NOTHING = "–"
"""The text of a cell that has no value by its nature."""
SIDE_TONES = ("s1", "s2", "s3", "s4", "s5", "s6")


def side_tone(index: int) -> str:
    """Return tone of the side at `index`; after the sixth they repeat."""
    return SIDE_TONES[index % len(SIDE_TONES)]


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a table. Number and unit are separate, so that columns align."""

    text: str
    unit: str = ""
    sort: float | None = None
    """The value that the column sorts by; None: the text."""
    note: str = ""
    """Small print below the value: a range, a count, a conclusion."""
    title: str = ""
    """The full text where `text` is shortened: a path."""
    missing: str = ""
    """Why there is no measurement; `text` is then not shown."""
    source: str = ""
    """The text of the line of code that the cell is about."""
    code: bool = False
    """A path or a name from code."""
    strong: bool = False
    judged: str = ""
    """good | bad | open: the outcome of a verdict, as a colour."""
    interval: str = ""
    """Small print before the note, which narrow terminals leave out where there is a note."""

    def small_print(self, *, brief: bool = False) -> str:
        """Join interval and note; in brief give the note, or the interval where there is none."""
        return (self.note or self.interval) if brief else ", ".join(filter(None, (self.interval, self.note)))

    @property
    def is_location(self) -> bool:
        """Tell whether it is a line of a file."""
        return self.code and self.text.rpartition(":")[2].isdecimal()

    def one_line(self, footnotes: dict[str, str] | None = None) -> str:
        """Write value and unit; of a missing value its footnote mark, or the reason where there are no footnotes."""
        if self.missing:
            return f"not measured [{footnotes[self.missing]}]" if footnotes else f"not measured: {self.missing}"
        return self.text + ("" if self.unit in {"", "×", "%"} else " ") + self.unit


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
    judged: str = ""
    """good | bad | open: the outcome of a verdict, as the colour of the label."""


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
    code: str = ""
    """Code after the sentences, shown as it is."""


@dataclass(frozen=True, slots=True)
class Column:
    """Head of a table's column; numbers align right."""

    title: str
    number: bool = False
    tone: str = ""
    bar: bool = False
    """Its shares are drawn as bars where a phone shows rows as cards."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells; the first cell of a row names it. `profiler.report.table` makes them of declared columns."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def footnotes(self, *, empty_rows: bool = True) -> dict[str, str]:
        """Tell why cells have no value: reason -> mark (a, b, ...), in order of appearance.

        :param empty_rows: include rows in which nothing was measured, all for one reason (`row_missing`).
        """
        rows = [row for row in self.rows if empty_rows or not row_missing(row)]
        reasons = dict.fromkeys(cell.missing for row in rows for cell in row if cell.missing)
        return {reason: _mark(index) for index, reason in enumerate(reasons)}


def row_missing(row: tuple[Cell, ...]) -> str:
    """Return the reason why nothing of a row was measured, if there is only one; empty where something was."""
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
    """Bars on a common scale, or each filling the width."""

    caption: str
    bars: tuple[Bar, ...]
    share: bool = False
    """True: every bar fills the width, and its segments are shares."""
    note: str = ""

    def scale(self, bar: Bar) -> float:
        """Return the value that fills the width: the bar's own total, or that of the longest bar."""
        bars = (bar,) if self.share else self.bars
        return max((sum(segment.value for segment in item.segments) for item in bars), default=0.0) or 1.0

    def legend(self) -> tuple[tuple[str, str], ...]:
        """Return label and tone of every category in any bar, in order."""
        return tuple(dict.fromkeys((segment.label, segment.tone) for bar in self.bars for segment in bar.segments))


@dataclass(frozen=True, slots=True)
class PhaseStrip:
    """One step as a strip of its parts, and how long it would be after a change."""

    label: str
    """What it shows: 'A step, 28.4 ms'."""
    segments: tuple[Segment, ...]
    changed: float | None = None
    """The value of the step after the change, in the unit of the segments; None: nothing is predicted."""
    change: str = ""
    """What is shown beside that: 'after the first change: 17.3 ms at best'."""
    beside: PhaseStrip | None = None
    """The same step of another rank, on the same scale."""

    def width(self) -> float:
        """Return the value that fills the width: the longest step, now or after the change."""
        steps = [sum(segment.value for segment in strip.segments) for strip in self.strips()]
        return max(*steps, self.changed or 0.0) or 1.0

    def strips(self) -> tuple[PhaseStrip, ...]:
        """Return the strip, and the one beside it."""
        return (self,) if self.beside is None else (self, self.beside)

    def legend(self) -> tuple[Segment, ...]:
        """Return the parts of all strips, each name once."""
        parts: dict[str, Segment] = {}
        for strip in self.strips():
            for segment in strip.segments:
                if segment.value > 0:
                    parts.setdefault(segment.label, segment)
        return tuple(parts.values())


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
        """Return the largest value that is drawn; 0 where there is none."""
        return max((*self.y, *self.high), default=0.0)


@dataclass(frozen=True, slots=True)
class Level:
    """A labelled line across a plot to compare with."""

    label: str
    value: float
    text: str
    """The value as it is shown."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One of several small plots with the same axes; its title may be empty where it is the only one."""

    title: str
    curves: tuple[Curve, ...]
    levels: tuple[Level, ...] = ()
    y_label: str = ""
    """Its unit, where panels have separate axes."""

    def highest(self) -> float:
        """Return the largest value that is drawn; 0 where there is none."""
        return max((*(curve.highest() for curve in self.curves), *(level.value for level in self.levels)), default=0.0)


@dataclass(frozen=True, slots=True)
class Lines:
    """Small multiples of line plots."""

    caption: str
    x_label: str
    y_label: str
    panels: tuple[Panel, ...]
    y_max: float | None = None
    """None: from the data. The axis always begins at 0."""
    note: str = ""
    separate_x: bool = False
    separate_y: bool = False
    """True: the axis of a panel is its own; False: all panels have the same."""
    numbered: bool = False
    """True: x counts things from 1; there is no 0 and nothing between integers."""

    def y_limit(self, panel: Panel) -> float:
        """Return the largest value on the y axis of `panel`."""
        panels = (panel,) if self.separate_y else self.panels
        return self.y_max or max((item.highest() for item in panels), default=0.0)

    def legend(self) -> tuple[tuple[str, str], ...]:
        """Return label and tone of every curve, in order; nothing where the titles of panels name their only curve."""
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
class IntervalChart:
    """Observations as dots, with estimate and range, in rows."""

    caption: str
    x_label: str
    rows: tuple[Interval, ...]
    log: bool = False
    reference: float | None = None
    """A line to compare with, drawn if it lies within the axis."""
    note: str = ""
    levels: tuple[Level, ...] = ()
    """Labelled lines to compare with; the axis includes all of them."""


@dataclass(frozen=True, slots=True)
class Stair:
    """One step of a waterfall: from one level to the next, by a factor."""

    label: str
    begin: float | None
    """The level that it starts from; None for the first step, which is drawn as a mark."""
    end: float | None
    """The level that it reaches; None: not measured."""
    low: float | None
    high: float | None
    """Range of `end`."""
    text: str
    """The factor as it is shown: '3.21×', or that it was not measured."""
    interval: str = ""
    """Its interval as it is shown, or why there is none."""
    kind: str = "gain"
    """start | gain | loss | same (no significant difference) | unknown (no interval) | total"""
    note: str = ""
    """An addition to the label: what was left out or added with it."""
    conclusion: str = ""
    """The conclusion from the interval: 'no difference seen'."""

    def small_print(self) -> str:
        """Join interval and conclusion."""
        return ", ".join(filter(None, (self.interval, self.conclusion)))

    def description(self) -> str:
        """Join factor, interval and conclusion."""
        return f"{self.text} ({self.small_print()})" if self.small_print() else self.text


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Levels on a logarithmic axis, one step after the other: equal lengths are equal factors."""

    caption: str
    unit: str
    """The unit of the axis."""
    stairs: tuple[Stair, ...]
    """The stairs in the order in which they are drawn."""
    note: str = ""

    def legend(self) -> tuple[tuple[str, str], ...]:
        """Return label and kind of the steps that need an explanation, in order."""
        labels = {"loss": "slower", "same": "no difference seen", "unknown": "too few rounds to tell"}
        present = {stair.kind for stair in self.stairs if stair.end is not None}
        entries = tuple((labels[kind], kind) for kind in labels if kind in present)
        return (("faster", "gain"), *entries) if entries and "gain" in present else entries


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a flame graph."""

    label: str
    value: float
    text: str
    """The value as it is shown, for the tooltip."""
    where: str = ""
    """file:line, in full."""
    source: str = ""
    """The text of that line."""
    lean: float = 0.0
    """-1..1: less or more than before; drawn as a colour where the graph is a difference."""
    position: float = 0.0
    """0..1: where in a step it lies on average, for the order of time."""
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
class Slope:
    """One function in a slope chart."""

    label: str
    values: tuple[float | None, float | None]
    """Its time on the first and on the last side; None: that side does not have it."""
    texts: tuple[str, str]
    """The values as they are shown."""
    change: str
    """The last one over the first; empty where one is missing."""
    where: str
    """file:line, in full."""


@dataclass(frozen=True, slots=True)
class SlopeChart:
    """The time of functions on two sides, on a logarithmic scale: a line from each value to the other."""

    caption: str
    sides: tuple[Column, Column]
    slopes: tuple[Slope, ...]
    note: str = ""

    def table(self) -> Table:
        """Return the same numbers as a table."""
        rows = tuple(
            (
                Cell(slope.label, title=slope.where),
                *(Cell(text, sort=value) for text, value in zip(slope.texts, slope.values, strict=True)),
                Cell(slope.change),
            )
            for slope in self.slopes
        )
        return Table(self.caption, (Column("Function"), *self.sides, Column("Change", number=True)), rows, self.note)


@dataclass(frozen=True, slots=True)
class TimelineKind:
    """What a part of a timeline was, for its colour and for a reader who points at it."""

    label: str
    """The category, as the legend names it: 'launch'."""
    tone: str
    text: str
    """'launch at decode.py:54 (DecodeTokens.token)'"""


@dataclass(frozen=True, slots=True)
class TimelineTrack:
    """What the host, or a stream of the device, did one after the other."""

    label: str
    begin: tuple[int, ...]
    """ns from the begin of the timeline; ascending, and the parts do not overlap."""
    end: tuple[int, ...]
    kind: tuple[int, ...]
    """The number of each part in `TimelineChart.kinds`."""
    idle: TimelineKind
    """What the time between the parts is."""

    def shares(self, chart: TimelineChart) -> dict[TimelineKind, float]:
        """Return the share of each category, the largest first; the first kind of a category stands for it."""
        total: dict[str, tuple[TimelineKind, int]] = {}
        rest = chart.length
        for begin, end, number in zip(self.begin, self.end, self.kind, strict=True):
            kind = chart.kinds[number]
            first, ns = total.get(kind.label, (kind, 0))
            total[kind.label] = first, ns + end - begin
            rest -= end - begin
        total[self.idle.label] = self.idle, rest
        return {kind: ns / chart.length for kind, ns in sorted(total.values(), key=lambda entry: -entry[1]) if ns > 0}


@dataclass(frozen=True, slots=True)
class TimelineGroup:
    """The tracks of one program."""

    label: str
    """Empty where it is the only one."""
    note: str
    """The work that it did in this time: '28 tokens'."""
    tracks: tuple[TimelineTrack, ...]


@dataclass(frozen=True, slots=True)
class TimelineChart:
    """The same stretch of time of one or several programs on one scale."""

    caption: str
    length: int
    """ns"""
    groups: tuple[TimelineGroup, ...]
    kinds: tuple[TimelineKind, ...]
    note: str = ""
    legend: tuple[tuple[str, str], ...] = ()
    """Label and tone of the categories, in order."""


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A line of code with its share of the time."""

    share: float | None
    """None: it is not known."""
    location: str
    """`train.py:14 Images.__getitem__`"""
    source: str = ""
    """The text of the line; empty: it was not recorded."""
    path: str = ""
    """The full path and the line."""
    change: str = ""
    """What stands in place of its share: what it costs on both sides (`12.4 ms → 17.1 ms`), or a count."""
    diff: tuple[str, ...] = ()
    """Lines of a diff that changed it, each with its sign."""


@dataclass(frozen=True, slots=True)
class Places:
    """Lines of code, each in one line of a terminal."""

    title: str
    places: tuple[CodePlace, ...]
    note: str = ""
    """What the shares are of, or why there are no lines; a terminal leaves it out where there are some."""


@dataclass(frozen=True, slots=True)
class Group:
    """Blocks side by side where there is room; each column has a heading."""

    columns: tuple[tuple[str, tuple[Block, ...]], ...]


Block = (
    Text | Callout | NotMeasured | Items | Table | StackedBars | PhaseStrip | Lines
    | IntervalChart | Waterfall | Flame | SlopeChart | TimelineChart | Places | Group
)  # fmt: skip


GROUPS = {
    "time": "Where the time goes",
    "device": "What the device does",
    "code": "Lines and call stacks",
    "evidence": "Evidence, method and environment",
}
"""Group of sections -> its title; a page shows each group closed."""


@dataclass(frozen=True, slots=True)
class Section:
    """A titled sequence of blocks; `brief` is what a terminal shows of it by default."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    brief: tuple[Block, ...] = ()
    group: str = ""
    """One of GROUPS; empty: a page shows it open."""


@dataclass(frozen=True, slots=True)
class Headline:
    """One sentence in large type, of which one part is highlighted."""

    before: str
    highlight: str = ""
    after: str = ""
    judged: str = "good"
    """good | bad | open: the colour of the highlighted part."""

    @property
    def text(self) -> str:
        """Return the sentence."""
        return self.before + self.highlight + self.after


@dataclass(frozen=True, slots=True)
class Chip:
    """A fact in a few words."""

    text: str
    tone: str = "plain"
    """good | warning | plain"""
    detail: str = ""
    """The fact as a whole sentence, where the few words leave something out."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do next."""

    title: str
    text: str = ""
    code: str = ""
    """What to write."""
    command: str = ""
    """What to run, as a shell reads it, with or without a terminal."""
    asking: str = ""
    """The form of the command for a terminal, where it asks before it does anything; empty: the same."""
    note: str = ""
    """What it gives, and how that was predicted."""
    place: str = ""
    """The line to change."""
    lines: tuple[str, ...] = ()
    """FILE:LINE of the lines to change, as the record names them, the first one first."""

    def details(self) -> str:
        """Tell what stands after the title: the text and the line."""
        return ", ".join(filter(None, (self.text, self.place)))

    def with_place_first(self) -> str:
        """Return all of it on one line, whose end may be cut: the line to change stands first."""
        return ": ".join(filter(None, (self.place, self.title, self.text)))


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """What a reader needs first: what limits the program, where, how much there is to gain, and what to do now."""

    context: tuple[str, ...]
    """The program, the steps, the device and the date."""
    headline: Headline
    why: tuple[str, ...] = ()
    """At most three sentences."""
    chips: tuple[Chip, ...] = ()
    picture: Block | None = None
    places_title: str = ""
    places: tuple[CodePlace, ...] = ()
    """At most six lines, those with most time first."""
    places_note: str = ""
    """What the shares are of, or why there are no lines."""
    actions_title: str = "What now"
    actions: tuple[Action, ...] = ()
    """At most three."""

    def context_line(self) -> str:
        """Return the context in one line."""
        return " · ".join(self.context)

    def places_block(self) -> Places:
        """Return the lines as a block of their own."""
        return Places(self.places_title, self.places, self.places_note)


@dataclass(frozen=True, slots=True)
class Report:
    """A first screen, and a titled sequence of sections, which a renderer draws."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]
    first: FirstScreen | None = None
    """None: the sections begin at once."""

    def open_sections(self) -> tuple[Section, ...]:
        """Return the sections of no group."""
        return tuple(section for section in self.sections if not section.group)

    def groups(self) -> tuple[tuple[str, str, tuple[Section, ...]], ...]:
        """Name, title and sections of each group that has any."""
        members = {name: tuple(each for each in self.sections if each.group == name and each.blocks) for name in GROUPS}
        return tuple((name, GROUPS[name], sections) for name, sections in members.items() if sections)
