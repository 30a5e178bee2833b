"""Prints a gate's result in the terminal: the verdict, then what changed, how sure it is, what is doubtful."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, TextIO

from profiler.check.model import FAIL, INCONCLUSIVE, PASS, CounterLine, GateResult, Throughput
from profiler.check.outputs import said, words
from profiler.check.outputs import text as sentences
from profiler.core.terminal import ascii_text, plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

COLOURS: Final = {PASS: "green", INCONCLUSIVE: "yellow", FAIL: "red"}
_COMMAND: Final = re.compile(r"(?<!\S)::|##\[")
"""What a runner of GitHub takes for a command of ours; it reads every line that a step prints.

Source: the runner's ActionCommand.cs, TryParseV2 and TryParse.
"""
_LABEL: Final = 9
_INDENT: Final = 2
_GAP: Final = 2


def print_result(result: GateResult, *, stream: TextIO) -> None:
    """Draw `result` on `stream`, as wide as it is; in colour where it has colours and NO_COLOR does not forbid it."""
    from rich.console import Console

    page = _Page(Console(file=stream, highlight=False))
    page.say(f"{result.state}  ", (said.headline(result), "bold"), first=f"bold {COLOURS.get(result.state, '')}")
    if result.explanation:
        page.say(" " * (len(result.state) + _GAP), (result.explanation, ""))
    _sides(page, result)
    if result.counters_state is not None:
        _counters(page, result)
    if result.throughput is not None:
        _throughput(page, result, result.throughput)
    for title, items, style in (
        ("Warnings", sentences.warnings(result), "yellow"),
        ("Notes", sentences.notes(result), "dim"),
    ):
        if items:
            page.head(title)
            for item in items:
                page.say("  - ", (item, style), first=style)
    _reports(page, result)


class _Page:
    """Paragraphs on one console: text commands neither the terminal nor who reads it, and hangs behind labels."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = console.width
        self.unicode = (console.encoding or "").lower().startswith("utf")

    def text(self, text: str, style: str = "") -> Text:
        from rich.text import Text

        text = _COMMAND.sub(lambda found: " ".join(found[0]), plain(text))
        return Text(text if self.unicode else ascii_text(text), style)

    def say(self, label: str, *parts: tuple[str, str], first: str = "") -> None:
        """One paragraph that hangs behind its label."""
        body = self.text("")
        for text, style in parts:
            body.append_text(self.text(text, style))
        self.hang(self.text(label, first), body)

    def show(self, *parts: Text) -> None:
        """One line of parts, each in its own style: the sum of two texts is all in the style of the first."""
        line = self.text("")
        for part in parts:
            line.append_text(part)
        line.rstrip()
        self.console.print(line, soft_wrap=True)

    def hang(self, label: Text, body: Text) -> None:
        """Lines of `body` behind `label`."""
        room = max(20, self.width - label.cell_len)
        for number, line in enumerate(body.wrap(self.console, room) or [body]):
            begin = label if number == 0 else self.text(" " * label.cell_len)
            self.show(begin, line)

    def head(self, title: str, state: str = "", rest: str = "") -> None:
        """Title of a part, with its state."""
        self.console.print()
        label = self.text(f"{title}  " if state or rest else title, "bold")
        body = self.text("").append_text(self.text(state, f"bold {COLOURS.get(state, '')}"))
        self.hang(label, body.append_text(self.text(f"  {rest}" if state and rest else rest, "dim")))

    def rows(self, columns: Sequence[str], rows: Iterable[tuple[str, Sequence[str], Sequence[Text]]]) -> None:
        """A table: a state, a name and numbers in columns, then lines that belong to the row.

        A name that leaves no room for the numbers gets a line of its own.
        """
        made = [(state, [self.text(one) for one in cells], below) for state, cells, below in rows]
        heads = [self.text(one, "dim") for one in columns]
        table = zip(heads, *(cells for _, cells, _ in made), strict=True)
        widths = [max(cell.cell_len for cell in column) for column in table]
        states = max(len(state) for state, _, _ in made)
        left = _INDENT + states + _GAP
        room = self.width - left - sum(width + _GAP for width in widths[1:])
        names = [cells[0].cell_len for _, cells, _ in made if cells[0].cell_len <= room]
        widths[0] = max([heads[0].cell_len, *names])
        self.show(self.text(" " * left), *self._row(heads, widths))
        for state, cells, below in made:
            begin = self.text(" " * _INDENT + state.ljust(states + _GAP), COLOURS.get(state, ""))
            if cells[0].cell_len > widths[0]:
                self.hang(begin, cells[0])
                begin, cells[0] = self.text(" " * left), self.text("")
            self.show(begin, *self._row(cells, widths))
            for line in below:
                self.hang(self.text(" " * (left + _INDENT)), line)

    def _row(self, cells: Sequence[Text], widths: Sequence[int]) -> Iterator[Text]:
        """The first cell to the left of its column, numbers to the right of theirs."""
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            space = self.text(" " * (width - cell.cell_len + _GAP * (at > 0)))
            yield from (space, cell) if at else (cell, space)


def _sides(page: _Page, result: GateResult) -> None:
    page.console.print()
    other = "program" if result.mode == "baseline" else "candidate"
    known = [(said.base_word(result), said.held_against(result)), (other, said.side(result.candidate))]
    for label, text in (*known, ("took", words.duration(result.seconds))):
        page.say(label.ljust(_LABEL + _GAP), (text, "dim"), first="dim")


def _counters(page: _Page, result: GateResult) -> None:
    page.head("Counters per step", result.counters_state or "", sentences.untold_counters_reason(result))
    shown = [line for line in result.counters if line.state != PASS or words.changed(line)]
    if shown:
        rows = ((line.state, (words.title(line), *words.row(line)), _below(page, line)) for line in shown)
        title = said.base_title(result)
        page.rows(("", title[0].lower() + title[1:], "candidate", "allowed"), rows)
    rest = len(result.counters) - len(shown)
    if rest:
        others = f"{rest:,} other{'s' * (rest != 1)} unchanged" if shown else f"all {rest:,} unchanged"
        page.say("  ", (others, "dim"))


def _below(page: _Page, line: CounterLine) -> list[Text]:
    sites = [page.text(words.site(change), "bold" if line.state == FAIL else "") for change in line.changes]
    return sites + ([page.text(sentences.reasons(line.reasons), "dim")] if line.reasons else [])


def _throughput(page: _Page, result: GateResult, throughput: Throughput) -> None:
    page.head("Throughput", throughput.state, sentences.untold_speed_reason(result))
    rows = []
    for line in throughput.lines:
        state = said.line_state(throughput, line)
        below = [page.text(text, "dim") for text in said.seen(line, state)]
        below += [page.text(text) for text in (said.more(result, line),) if text]
        cells = (line.name, words.slowdown(line.slowdown), words.interval(line.low, line.high), f"{line.rounds:,}")
        rows.append((state, cells, below))
    if rows:
        page.rows(("", "slow-down", "interval", "rounds"), rows)
    if control := said.control(throughput):
        page.say("  ", (control, "dim"))


def _reports(page: _Page, result: GateResult) -> None:
    if result.out:
        page.console.print()
        page.console.print(page.text(f"report: {PurePath(result.out) / 'check.html'}"), soft_wrap=True)
    if meant := said.if_meant(result):
        page.say("", (meant, ""))
