"""Renders a Report in the terminal: in brief by default, every block when asked; colour and Unicode where there are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from profiler.analyse.model import Analysis, Comparison
from profiler.core.units import ASCII
from profiler.report import blocks as b
from profiler.report.build import build_report
from profiler.report.quantities import plain, short_path
from profiler.report.render import waterfall
from profiler.report.render.text import bar, cell_text, hottest, span_text, spark

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

COLOURS = {
    "c1": "yellow",
    "c2": "red",
    "c3": "cyan",
    "c4": "blue",
    "c5": "magenta",
    "c6": "green",
    "c7": "bright_yellow",
    "c8": "bright_red",
    "c9": "bright_blue",
    "c10": "bright_black",
    "idle": "bright_black",
    "s1": "yellow",
    "s2": "bright_blue",
    "s3": "green",
    "s4": "magenta",
    "s5": "red",
    "s6": "cyan",
    "floor": "bright_black",
}
JUDGED = {"good": "green", "bad": "red", "open": "yellow"}
_STAIRS = {"start": "yellow", "gain": "bright_blue", "loss": "red", "same": "bright_black", "total": "bold bright_blue"}
_LABEL = 14
"""Columns for the names of bars."""
_NARROW = 76
"""Columns below which small print in tables is left out."""
_WIDE = 100
"""Columns from which small print is shown in full."""
_PLACE = 0.37
"""Share of the width that a line's place may take in a table."""
_WHOLE = 24
"""Characters of a number with its interval."""
_SPAN = 32
"""Columns for the ends of a curve and the spaces between."""
_ASCII = str.maketrans({**ASCII, "…": "..", "·": "-", "\u2009": " ", "–": "-", "’": "'"})


def print_comparison(comparison: Comparison, *, report: Path | None = None, console: Console | None = None) -> None:
    """Verdict, numbers, bars and causes of a comparison; `report` is where the page lies."""
    print_report(build_report(comparison), page=report, console=console)


def print_analysis(analysis: Analysis, *, report: Path | None = None, console: Console | None = None) -> None:
    """Verdict, numbers, bars and causes of one run; `report` is where the page lies."""
    print_report(build_report(analysis), page=report, console=console)


def print_report(
    report: b.Report, *, full: bool = False, page: Path | None = None, console: Console | None = None
) -> None:
    """Draw `report` on `console`, by default on standard output.

    :param full: every block of every section, not only the brief ones.
    :param page: the path of the HTML report, printed last.
    """
    if console is None:
        from rich.console import Console as NewConsole

        console = NewConsole(highlight=False)
    pencil = _Pencil(console)
    pencil.say(report.title, "bold")
    pencil.say(report.subtitle, "dim")
    for section in report.sections:
        chosen = section.blocks if full else section.brief
        if full:
            pencil.say(f"\n== {section.title} ==", "bold")
        for block in chosen:
            console.print()
            pencil.draw(block)
    if page is not None:
        console.print()
        pencil.say(f"report: {page}", wrap=False)


def _short(block: b.Table, column: int) -> bool:
    """Whether a column's cells with their small print are short enough to stay in one piece."""
    return all(len(f"{row[column].text} {row[column].unit}  {row[column].note}") <= _WHOLE for row in block.rows)


class _Pencil:
    """Draws blocks on one console. Text goes through `rich.text.Text`: markup in a name stays text."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.unicode = (console.encoding or "").lower().startswith("utf")
        self._drawings: dict[type, Callable[[Any], None]] = {
            b.Text: lambda block: self.say(block.text),
            b.Callout: self._callout,
            b.NotMeasured: lambda block: self.say(f"{block.what}: not measured: {block.reason}", "italic"),
            b.Items: self._items,
            b.Stats: self._stats,
            b.Table: self._table,
            b.StackedBars: self._bars,
            b.Lines: self._lines,
            b.Intervals: self._intervals,
            b.Waterfall: self._waterfall,
            b.Flame: self._flame,
            b.Trace: self._trace,
            b.Group: self._group,
        }

    def draw(self, block: b.Block) -> None:
        """One block."""
        self._drawings[type(block)](block)

    def text(self, text: str, style: str = "") -> Text:
        """Text that neither commands the terminal nor breaks its encoding."""
        from rich.text import Text

        text = plain(text)
        if not self.unicode:
            text = text.translate(_ASCII).encode("ascii", "replace").decode("ascii")
        return Text(text, style)

    def say(self, text: str, style: str = "", *, wrap: bool = True) -> None:
        """One paragraph; a path is not wrapped, so that it can be copied."""
        newline = text[: len(text) - len(text.lstrip("\n"))]
        self.console.print(newline, self.text(text.lstrip("\n"), style), sep="", soft_wrap=not wrap)

    def _callout(self, block: b.Callout) -> None:
        style = f"bold {JUDGED.get(block.judged, '')}" if block.judged else ""
        style = style or {"verdict": "bold", "warning": "bold yellow"}.get(block.tone, "")
        label = f"{block.label}: " if (block.tone == "warning" or block.judged) and block.label else ""
        self.say(label + block.whole(), style)

    def _items(self, block: b.Items) -> None:
        if block.title:
            self.say(block.title, "bold")
        for item in block.items:
            self.say(f"- {item}")

    def _stats(self, block: b.Stats) -> None:
        rows = [(stat.label, self._value(stat.value), self.text(stat.value.note, "dim")) for stat in block.items]
        self._grid(("", "", ""), rows, (False, True, False))

    def _value(self, cell: b.Cell, marks: dict[str, str] | None = None) -> Text:
        style = "dim italic" if cell.missing else JUDGED.get(cell.judged, "bold" if cell.strong else "")
        return self.text(cell_text(cell, marks), style)

    def _table(self, block: b.Table) -> None:
        marks = block.reasons()
        rows = []
        for row in block.rows:
            shown = []
            for column, cell in zip(block.columns, row, strict=True):
                if b.is_place(cell):
                    shown.append(self._place(cell))
                    continue
                value = self._value(cell, marks)
                # where there is little room, what an interval says in words, and not its ends
                whole = self.console.width >= _WIDE or not column.number
                note = cell.note if whole else cell.note.rpartition(", ")[2]
                if note and self.console.width >= _NARROW:
                    value.append_text(self.text(f"  {note}" if cell.text else note, "dim"))
                shown.append(value)
            rows.append(shown)
        self.say(block.caption, "bold")
        places = {at for row in block.rows for at, cell in enumerate(row) if b.is_place(cell)}
        self._grid(
            [column.title for column in block.columns],
            rows,
            [column.number for column in block.columns],
            whole=places | {at for at, column in enumerate(block.columns) if column.number and _short(block, at)},
        )
        for reason, mark in marks.items():
            self.say(f"[{mark}] not measured: {reason}", "dim")
        if block.note:
            self.say(block.note, "dim")

    def _place(self, cell: b.Cell) -> Text:
        """file:line in one piece, with its folders and its function where there is room for them."""
        name, room = cell.text.rpartition("/")[2], round(_PLACE * self.console.width)
        longer = (f"{cell.text}  {cell.note}", f"{name}  {cell.note}") if self.console.width >= _WIDE else ()
        fits = next((text for text in longer if len(text) <= room), name)
        text, _, note = fits.partition("  ")
        return self.text(text).append_text(self.text(f"  {note}" if note else "", "dim"))

    def _grid(
        self,
        head: Iterable[str],
        rows: Iterable[Iterable[Text | str]],
        numbers: Iterable[bool],
        *,
        whole: Collection[int] = (),
    ) -> None:
        """Columns of `whole` are never broken within a line: a line number that is cut is another one."""
        from rich import box
        from rich.table import Table

        titles = list(head)
        grid = Table(box=box.SIMPLE_HEAD, show_header=any(titles), pad_edge=False, show_edge=False)
        for at, (title, number) in enumerate(zip(titles, numbers, strict=True)):
            side: Literal["left", "right"] = "right" if number else "left"
            grid.add_column(self.text(title, "dim"), justify=side, overflow="fold", no_wrap=at in whole)
        for row in rows:
            grid.add_row(*(self.text(cell) if isinstance(cell, str) else cell for cell in row))
        self.console.print(grid)

    def _bars(self, block: b.StackedBars) -> None:
        """A category a row and a bar a column: readable without colour, where a stacked bar is not."""
        room = (self.console.width - _LABEL) // max(1, len(block.bars)) - 2
        self.say(block.caption, "bold")
        head = self.text("".ljust(_LABEL))
        for one in block.bars:
            head.append_text(self.text(f"{one.label}, {one.text}"[:room].ljust(room + 2), "dim"))
        self.console.print(head, no_wrap=True, overflow="crop")
        for label, tone in block.legend():
            line = self.text(label[: _LABEL - 1].ljust(_LABEL))
            for one in block.bars:
                found = next((segment for segment in one.segments if segment.label == label), None)
                number = (found.text if found else "").rjust(8)
                share = found.value / block.scale(one) if found else 0.0
                drawn = bar(share, max(4, room - 9), unicode=self.unicode)
                line.append(self.text(number).plain + " ")
                line.append(drawn.ljust(room - 7), COLOURS.get(tone, ""))
            line.rstrip()
            self.console.print(line, no_wrap=True, overflow="crop")
        if block.note:
            self.say(block.note, "dim")

    def _lines(self, block: b.Lines) -> None:
        names = max((len(panel.title) + len(c.label) for panel in block.panels for c in panel.curves), default=0)
        width = max(8, min(40, self.console.width - names - _SPAN))
        rows = [
            (
                panel.title,
                curve.label,
                spark(curve.y, block.top(panel), width, unicode=self.unicode),
                span_text(curve.y, panel.y_label or block.y_label),
            )
            for panel in block.panels
            for curve in panel.curves
        ]
        rows += [(panel.title, level.label, "", level.text) for panel in block.panels for level in panel.levels]
        self.say(block.caption, "bold")
        self._grid(("", "", f"over {block.x_label}", ""), rows, (False, False, False, True))
        if block.note:
            self.say(block.note, "dim")

    def _intervals(self, block: b.Intervals) -> None:
        rows = [
            (row.label, row.text, span_text([v for v in (row.low, row.high) if v is not None], ""), f"{len(row.dots)}")
            for row in block.rows
        ]
        self.say(block.caption, "bold")
        rows += [(level.label, level.text, "", "") for level in block.levels]
        self._grid(("", "estimate", "range", "observations"), rows, (False, True, True, True))
        if block.note:
            self.say(block.note, "dim")

    def _waterfall(self, block: b.Waterfall) -> None:
        """A step a line, the last on top, as the page has it; the interval where there is room for it."""
        width = self.console.width
        names = min(max((len(stair.label) for stair in block.stairs), default=0), width // 3)
        said = [self.text(self._worth(stair)).plain for stair in block.stairs]
        room = max(8, min(60, width - names - max(map(len, said), default=0) - 4))
        self.say(f"{block.caption}, {block.unit}", "bold")
        drawn = waterfall.layout(block)
        for row, worth in reversed(list(zip(drawn.rows, said, strict=True))):
            line = self.text(row.stair.label[:names].ljust(names + 2))
            line.append(waterfall.track(row, room, unicode=self.unicode), _STAIRS.get(row.stair.kind, ""))
            line.append_text(self.text(f"  {worth}"))
            self.console.print(line, no_wrap=True, overflow="crop")
        if block.note:
            self.say(block.note, "dim")

    def _worth(self, stair: b.Stair) -> str:
        if self.console.width >= _WIDE:
            return stair.told()
        said = stair.span.rpartition(", ")[2] if self.console.width >= _NARROW else ""
        return f"{stair.text}  {said}".rstrip()

    def _flame(self, block: b.Flame) -> None:
        rows = [
            (f"{100 * own:.1f}%", frame.label, short_path(frame.where) if frame.where else "", frame.text)
            for frame, own, _ in hottest(block)
        ]
        self.say(f"{block.caption}; the frames with most time of their own", "bold")
        self._grid(("own", "frame", "at", "with callees"), rows, (True, False, False, True))

    def _trace(self, block: b.Trace) -> None:
        self.say(block.caption, "bold")
        self.say(block.otherwise)

    def _group(self, block: b.Group) -> None:
        for title, inner in block.columns:
            self.say(title, "bold")
            for one in inner:
                self.draw(one)
