"""Renders a Report in the terminal, in brief or with every block, with colour and Unicode where they are available."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.report import blocks as b
from profiler.report.render.drawing import (
    Terminal,
    TextColumn,
    bar,
    command_lines,
    hottest,
    is_unicode,
    line_rows,
    span_text,
    waterfall_layout,
    waterfall_track,
    whole_percent,
)
from profiler.report.render.figures import cell_runs
from profiler.report.table import short_path

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

COLOURS = {
    "c1": "yellow", "c2": "red", "c3": "cyan", "c4": "blue", "c5": "magenta", "c6": "green", "c7": "bright_yellow",
    "c8": "bright_red", "c9": "bright_black", "c10": "bright_green", "c11": "bright_magenta", "c12": "bright_cyan",
    "c13": "white", "c14": "bright_red", "c15": "red", "c16": "bright_red", "idle": "bright_black", "s1": "yellow",
    "s2": "bright_blue", "s3": "green", "s4": "magenta", "s5": "red", "s6": "cyan", "floor": "bright_black",
}  # fmt: skip
JUDGED = {"good": "green", "bad": "red", "open": "yellow"}
_STAIRS = {"start": "yellow", "gain": "bright_blue", "loss": "red", "same": "bright_black", "total": "bold bright_blue"}
SCREEN = 24
"""Lines of a terminal, which a first screen fits."""
_CHIPS = {"good": "green", "warning": "yellow", "plain": "dim"}
_NARROWEST = 20
"""Characters of the strip of a step, however long the text beside it is."""
_FILLS = "█▓▒░▞▤▥▦▚·"
_ASCII_FILLS = "#=+-%$&@:."
"""Fills distinguish the parts without colour."""
_BULLET = "- "
_LABEL = 18
"""Columns for the names of bars."""
_NARROW = 76
"""Columns below which small print in tables is left out."""
_WIDE = 100
"""Columns from which small print is shown in full."""
_LOCATION = 0.37
"""Share of the width that a line of a file may take in a table."""
_UNBROKEN = 24
"""Characters of a number with its interval that are not broken into two lines."""
_AMOUNT = 8
"""Characters of the longest amount of a line of code that has a column."""
_RANGE = 32
"""Columns for the ends of a curve and the spaces between."""


def print_report(
    report: b.Report,
    *,
    full: bool = False,
    page: Path | None = None,
    console: Console | None = None,
    lines: int = SCREEN,
) -> None:
    """Draw `report` on `console`, by default on standard output.

    :param full: every block of every section, not only the brief ones.
    :param page: the path of the HTML report, printed last.
    :param lines: of the first screen, at most.
    """
    if console is None:
        from rich.console import Console as NewConsole

        console = NewConsole(highlight=False)
    printer = _Printer(console)
    if report.first is not None:
        printer.first_screen(report.first, lines)
    else:
        printer.paragraph(report.title, "bold")
        printer.paragraph(report.subtitle, "dim")
    for section in report.sections:
        if full:
            console.print()
            printer.paragraph(f"== {section.title} ==", "bold")
        for block in section.blocks if full else section.brief:
            console.print()
            printer.draw(block)
    if page is not None:
        console.print()
        printer.paragraph(f"report: {page}", wrap=False)


def print_first_screen(first: b.FirstScreen, console: Console, lines: int) -> None:
    """Draw a first screen in at most `lines` lines of `console`."""
    _Printer(console).first_screen(first, lines)


def _ever_shorter(first: b.FirstScreen) -> Iterator[tuple[b.FirstScreen, bool]]:
    """The screen and whether its later actions are cut to a line, then without the notes of its actions, with fewer
    lines of code, sentences and actions."""
    yield first, False
    first = replace(first, actions=tuple(replace(action, note="") for action in first.actions))
    yield first, False
    for count in (4, 3):
        yield replace(first, places=first.places[:count]), False
    yield first, True
    for count in (4, 3):
        first = replace(first, places=first.places[:count])
        yield first, True
    for count in (2, 1):
        first = replace(first, actions=first.actions[:count])
        yield first, True
    yield replace(first, why=first.why[:1], places=first.places[:2]), True


class _Printer(Terminal):
    """Draws blocks on one console."""

    def __init__(self, console: Console) -> None:
        super().__init__(console.width, unicode=is_unicode(console))
        self.console = console
        self.is_terminal = console.file.isatty()
        """FORCE_COLOR, which jobs set, makes no terminal of a pipe."""
        self.has_width = self.is_terminal or "COLUMNS" in os.environ
        """Whether what is longer than a line would be broken anywhere: a file and a pipe have lines of any length."""
        self._drawings: dict[type, Callable[[Any], None]] = {
            b.Text: lambda block: self.paragraph(block.text),
            b.Callout: self._callout,
            b.NotMeasured: lambda block: self.paragraph(f"{block.what}: not measured: {block.reason}", "italic"),
            b.Items: self._items,
            b.Table: self._table,
            b.StackedBars: self._bars,
            b.PhaseStrip: self._strip,
            b.Lines: self._lines,
            b.IntervalChart: self._intervals,
            b.Waterfall: self._waterfall,
            b.Flame: self._flame,
            b.SlopeChart: lambda block: self._table(block.table()),
            b.TimelineChart: self._timeline,
            b.Places: self._places,
            b.Group: self._group,
        }

    def draw(self, block: b.Block) -> None:
        """Return one block."""
        self._drawings[type(block)](block)

    def first_screen(self, first: b.FirstScreen, lines: int = SCREEN) -> None:
        """Draw a first screen in so few details that it takes at most `lines` lines."""
        for shorter, is_cut in _ever_shorter(first):
            with self.console.capture() as drawn:
                self._first_screen(shorter, is_cut=is_cut)
            if drawn.get().count("\n") <= lines:
                break
        self._first_screen(shorter, is_cut=is_cut)

    def _first_screen(self, first: b.FirstScreen, *, is_cut: bool) -> None:
        self._cut(first.context_line(), "dim")
        headline = self.text(first.headline.before, "bold")
        headline.append_text(self.text(first.headline.highlight, f"bold {JUDGED.get(first.headline.judged, '')}"))
        self.console.print(headline.append_text(self.text(first.headline.after, "bold")))
        if first.why:
            self.paragraph(" ".join(first.why))
        chips = self.text(" · ").join(self.text(chip.text, _CHIPS[chip.tone]) for chip in first.chips)
        self._cut_text(chips)
        if isinstance(first.picture, b.TimelineChart):
            self.draw(replace(first.picture, note=""))
        elif first.picture is not None:
            self.draw(first.picture)
        self._places(first.places_block())
        if first.actions:
            self.paragraph(first.actions_title, "bold")
        for number, action in enumerate(first.actions, 1):
            if is_cut and number > 1:
                self._cut(f"{number}. {action.with_place_first()}")
            else:
                self._hang(f"{number}. {': '.join(filter(None, (action.title, action.details())))}", len("1. "))
            command = (self.is_terminal and action.asking) or action.command
            for line in (*action.code.splitlines(), *command_lines(command, self.width - 7)):
                self.paragraph(f"   {line}", "cyan", wrap=False)
            if action.note:
                self._cut(f"   {action.note}", "dim")

    def _places(self, block: b.Places) -> None:
        if not block.places:
            self._note(block.note)
            return
        unsampled = any(place.share is None and not place.change for place in block.places)
        self.paragraph(block.title + " (?: no sample of the training thread)" * unsampled, "bold")
        amounts = [place.change or whole_percent(place.share) for place in block.places]
        # counts and sizes in a column; what a line costs on two sides is too long for one
        width = max(4, *(len(amount) for amount in amounts if len(amount) <= _AMOUNT), 0)
        for amount, place in zip(amounts, block.places, strict=True):
            self._cut(f"{amount:>{width}}  {place.location}  {place.source}".rstrip())

    def _hang(self, text: str, indent: int) -> None:
        """Return a paragraph whose later lines are indented."""
        for number, line in enumerate(self.text(text[indent:]).wrap(self.console, self.width - indent)):
            line.rstrip()
            self.console.print(self.text(" " * indent if number else text[:indent]).append_text(line))

    def _cut(self, text: str, style: str = "") -> None:
        """Print one line; cut it with an ellipsis where it is too long for a terminal, but not in a file or a pipe."""
        self._cut_text(self.text(text, style))

    def _cut_text(self, text: Text) -> None:
        if not text.plain:
            return
        if self.has_width:
            text.truncate(self.width, overflow="ellipsis" if self.unicode else "crop")
        self.console.print(text, soft_wrap=True)

    def _strip(self, block: b.PhaseStrip) -> None:
        """Return the parts of a step as fills of a bar, what each fill stands for, and the bar after the change."""
        whole, names = block.width(), [part.label for part in block.legend()]
        fills = dict(zip(names, cycle(_FILLS if self.unicode else _ASCII_FILLS), strict=False))
        longest = max(len(text) for strip in block.strips() for text in (strip.label, strip.change))
        room = max(_NARROWEST, self.width - longest - 2)
        for strip in block.strips():
            line, total = self.text(""), 0.0
            for part in strip.segments:
                begin = round(room * total / whole)
                total += part.value
                width = round(room * total / whole) - begin
                line.append(fills.get(part.label, "") * width, COLOURS.get(part.tone, ""))
            line.append_text(self.text(f"  {strip.label}", "dim"))
            self.console.print(line, no_wrap=True, overflow="crop")
            parts = [part for part in strip.segments if part.value > 0]
            self._legend([(f"{part.label} {part.text}", part.tone, fills[part.label]) for part in parts])
        if block.changed is not None:
            line = self.text(("─" if self.unicode else "-") * round(room * block.changed / whole), "green")
            self._cut_text(line.append_text(self.text(f"  {block.change}", "green")))

    def paragraph(self, text: str, style: str = "", *, wrap: bool = True) -> None:
        """Return one paragraph; a path is not wrapped, so that it can be copied."""
        self.console.print(self.text(text, style), soft_wrap=not wrap)

    def _note(self, text: str) -> None:
        if text:
            self.paragraph(text, "dim")

    def _callout(self, block: b.Callout) -> None:
        style = f"bold {JUDGED.get(block.judged, '')}" if block.judged else ""
        style = style or {"verdict": "bold", "warning": "bold yellow"}.get(block.tone, "")
        label = f"{block.label}: " if (block.tone == "warning" or block.judged) and block.label else ""
        self.paragraph(label + block.text, style)

    def _items(self, block: b.Items) -> None:
        if block.title:
            self.paragraph(block.title, "bold")
        for item in block.items:
            self._hang(_BULLET + item, len(_BULLET))
        for code in block.code.splitlines():
            self.paragraph(f"    {code}", "cyan", wrap=False)

    def _grid(self, columns: Iterable[tuple[str, bool]], rows: Iterable[Iterable[Text | str]]) -> None:
        """Return a table with these titles; True: numbers."""
        self.console.print(self.table([TextColumn(title, number) for title, number in columns], rows))

    def _table(self, block: b.Table) -> None:
        footnotes = block.footnotes()
        columns = []
        for index, column in enumerate(block.columns):
            cells = [row[index] for row in block.rows]
            # a line number that is broken into two lines is another one
            unbroken = any(cell.is_location for cell in cells) or (
                column.number
                and all(len(f"{cell.text} {cell.unit}  {cell.small_print()}") <= _UNBROKEN for cell in cells)
            )
            columns.append(TextColumn(column.title, column.number, wrap=not unbroken))
        rows = [
            [self._cell(column, cell, footnotes) for column, cell in zip(block.columns, row, strict=True)]
            for row in block.rows
        ]
        self.paragraph(block.caption, "bold")
        self.console.print(self.table(columns, rows))
        self._sources(block)
        for reason, mark in footnotes.items():
            self._note(f"[{mark}] not measured: {reason}")
        self._note(block.note)

    def _sources(self, block: b.Table) -> None:
        """Return the text of the lines in a table, below it, where a line has the whole width."""
        cells = [cell for row in block.rows for cell in row if cell.source]
        pairs = [(cell.text.rpartition("/")[2] if cell.is_location else "", cell.source) for cell in cells]
        width = max((len(name) for name, _ in pairs), default=0)
        for name, source in dict.fromkeys(pairs):
            self._cut(f"  {name.ljust(width)}  {source}" if width else f"  {source}", "cyan")

    def _cell(self, column: b.Column, cell: b.Cell, footnotes: dict[str, str]) -> Text:
        if cell.is_location:
            return self._location(cell)
        style = "dim italic" if cell.missing else JUDGED.get(cell.judged, "bold" if cell.strong else "")
        value = self.text(cell.one_line(footnotes), style)
        # where there is little room: the conclusion from an interval, and not its ends
        note = cell.small_print(brief=self.width < _WIDE and column.number)
        if note and self.width >= _NARROW:
            value.append_text(self.text(f"  {note}" if cell.text else note, "dim"))
        return value

    def _location(self, cell: b.Cell) -> Text:
        """Write file:line in one piece, with its folders and its function where there is room for them."""
        name, room = cell.text.rpartition("/")[2], round(_LOCATION * self.width)
        longer = ((cell.text, cell.note), (name, cell.note)) if self.width >= _WIDE else ()
        fitting = (pair for pair in longer if len("  ".join(pair)) <= room)
        text, note = next(fitting, (name, ""))
        return self.text(text).append_text(self.text(f"  {note}" if note else "", "dim"))

    def _bars(self, block: b.StackedBars) -> None:
        """Return a row per category and a column per bar: readable without colour, where a stacked bar is not."""
        room = (self.width - _LABEL) // max(1, len(block.bars)) - 2
        self.paragraph(block.caption, "bold")
        head = self.text("".ljust(_LABEL))
        for item in block.bars:
            head.append_text(self.text(f"{item.label}, {item.text}"[:room].ljust(room + 2), "dim"))
        self.console.print(head, no_wrap=True, overflow="crop")
        for label, tone in block.legend():
            line = self.text(label[: _LABEL - 1].ljust(_LABEL))
            for item in block.bars:
                segment = next((segment for segment in item.segments if segment.label == label), None)
                number = (segment.text if segment else "").rjust(8)
                share = segment.value / block.scale(item) if segment else 0.0
                drawn = bar(share, max(4, room - 9), unicode=self.unicode)
                line.append(self.text(number).plain + " ")
                line.append(drawn.ljust(room - 7), COLOURS.get(tone, ""))
            line.rstrip()
            self.console.print(line, no_wrap=True, overflow="crop")
        self._note(block.note)

    def _lines(self, block: b.Lines) -> None:
        labels = max((len(panel.title) + len(c.label) for panel in block.panels for c in panel.curves), default=0)
        width = max(8, min(40, self.width - labels - _RANGE))
        rows = line_rows(block, width, unicode=self.unicode)
        self.paragraph(block.caption, "bold")
        self._grid((("", False), ("", False), (f"over {block.x_label}", False), ("", True)), rows)
        self._note(block.note)

    def _intervals(self, block: b.IntervalChart) -> None:
        rows = [
            (row.label, row.text, span_text([v for v in (row.low, row.high) if v is not None], ""), f"{len(row.dots)}")
            for row in block.rows
        ]
        self.paragraph(block.caption, "bold")
        rows += [(level.label, level.text, "", "") for level in block.levels]
        self._grid((("", False), ("estimate", True), ("range", True), ("observations", True)), rows)
        self._note(block.note)

    def _waterfall(self, block: b.Waterfall) -> None:
        """Return a line per step, the last on top, as in the page; the interval where there is room for it."""
        labels = min(max((len(stair.label) for stair in block.stairs), default=0), self.width // 3)
        values = [self.text(self._factor(stair)).plain for stair in block.stairs]
        room = max(8, min(60, self.width - labels - max(map(len, values), default=0) - 4))
        self.paragraph(f"{block.caption}, {block.unit}", "bold")
        for row, value in reversed(list(zip(waterfall_layout(block).rows, values, strict=True))):
            line = self.text(row.stair.label[:labels].ljust(labels + 2))
            line.append(waterfall_track(row, room, unicode=self.unicode), _STAIRS.get(row.stair.kind, ""))
            line.append_text(self.text(f"  {value}"))
            self.console.print(line, no_wrap=True, overflow="crop")
        self._note(block.note)

    def _factor(self, stair: b.Stair) -> str:
        if self.width >= _WIDE:
            return stair.description()
        note = (stair.conclusion or stair.interval) if self.width >= _NARROW else ""
        return f"{stair.text}  {note}".rstrip()

    def _flame(self, block: b.Flame) -> None:
        rows = [
            (own, frame.label, short_path(frame.where) if frame.where else "", frame.text)
            for frame, own in hottest(block)
        ]
        self.paragraph(f"{block.caption}; the frames with most time of their own", "bold")
        self._grid((("own", True), ("frame", False), ("at", False), ("with callees", True)), rows)

    def _timeline(self, block: b.TimelineChart) -> None:
        """Return a line of fills for each track, and what each fill stands for; idle time is left free."""
        fills = dict(zip((tone for _, tone in block.legend), _FILLS if self.unicode else _ASCII_FILLS, strict=False))
        labels = [(track, f"{group.label} {track.label}".lstrip()) for group in block.groups for track in group.tracks]
        margin = min(max(len(label) for _, label in labels), self.width // 3) + 2
        for track, label in labels:
            room = self.width - margin
            line = self.text(label[: margin - 2].ljust(margin) + " " * room)
            for first, last, tone in cell_runs(track, [kind.tone for kind in block.kinds], block.length, room):
                fill = self.text(fills.get(tone, " ") * (last - first), COLOURS.get(tone, ""))
                line = line[: margin + first].append_text(fill).append_text(line[margin + last :])
            self._cut_text(line)
        idle = {track.idle.tone for track, _ in labels}
        self._legend([(label, tone, fills.get(tone, " ")) for label, tone in block.legend if tone not in idle])
        self._note(block.note)

    def _legend(self, entries: Iterable[tuple[str, str, str]]) -> None:
        """Return label, tone and fill of each part, on as few lines as possible."""
        lines = [self.text("")]
        for label, tone, fill in entries:
            entry = self.text(fill, COLOURS.get(tone, "")).append_text(self.text(f" {label}"))
            if lines[-1] and lines[-1].cell_len + entry.cell_len + 2 > self.width:
                lines.append(self.text(""))
            lines[-1].append("  " * bool(lines[-1])).append_text(entry)
        for line in lines:
            self.console.print(line, no_wrap=True, overflow="crop")

    def _group(self, block: b.Group) -> None:
        for title, inner in block.columns:
            self.paragraph(title, "bold")
            for item in inner:
                self.draw(item)
