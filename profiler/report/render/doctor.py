"""Draws the answers of `doctor`, as a table for the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from profiler.core.machine import NO, NOT_KNOWN, PARTLY, YES, Capability
from profiler.report.render.drawing import Terminal, TextColumn

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

SCHEMA: Final = "doctor/1"
_COLOURS: Final = {YES: "green", PARTLY: "yellow", NO: "red", NOT_KNOWN: "magenta"}
_WIDE: Final = 130
"""Columns from which the remedy has its own column."""


def doctor_view(rows: Sequence[Capability], *, width: int, unicode: bool = True) -> Group:
    """Return the table, and in a line whether recording works. Commands to copy are in lines of their own."""
    from rich.console import Group

    terminal = Terminal(width, unicode=unicode)
    wide = width >= _WIDE
    columns = [TextColumn("what", wrap=width < 80), TextColumn("measured", wrap=width < 80)]
    columns.append(TextColumn("why", ratio=3 if wide else None))
    if wide:
        columns.append(TextColumn("what to do", ratio=2))
    cells = []
    for row in rows:
        answer = row.answer
        why = terminal.text(answer.why)
        remedy = terminal.text(answer.do, "bold")
        if answer.do and not wide:
            why.append("\n").append_text(terminal.text(f"-> {answer.do}", "bold"))
        title = terminal.text(row.title, "bold" if row.needed else "")
        cells.append([title, terminal.text(answer.state, _COLOURS[answer.state]), why, *([remedy] if wide else [])])
    table = terminal.table(columns, cells)
    return Group(table, terminal.text(""), terminal.text(conclusion(rows), "bold"))


def doctor_lines(rows: Sequence[Capability], *, unicode: bool = True) -> Iterator[Text]:
    """Yield the same where no terminal limits the width: a line for each check, and one for each command to copy."""
    terminal = Terminal(0, unicode=unicode)
    title = max(len(row.title) for row in rows)
    state = max(len(row.answer.state) for row in rows)
    for row in rows:
        yield terminal.text(f"{row.title:{title}}  {row.answer.state:{state}}  {row.answer.why}".rstrip())
        if row.answer.do:
            yield terminal.text(f"{'':{title + state + 4}}-> {row.answer.do}")
    yield terminal.text("")
    yield terminal.text(conclusion(rows))


def conclusion(rows: Sequence[Capability]) -> str:
    """Tell whether recording at level standard works, in a sentence."""
    lacking = [row for row in rows if row.lacking]
    if not lacking:
        return "Recording works at level standard."
    titles = ", ".join(row.title for row in lacking)
    first = next((row.answer.do for row in lacking if row.answer.do), "")
    return f"Recording at level standard lacks: {titles}." + (f" First: {first}" if first else "")


def doctor_json(rows: Sequence[Capability]) -> dict[str, Any]:
    """Return the keys of docs/json.md, "doctor"."""
    return {
        "schema": SCHEMA,
        "standard": not any(row.lacking for row in rows),
        "conclusion": conclusion(rows),
        "checks": [
            {
                "name": row.name,
                "title": row.title,
                "needed": row.needed,
                "state": row.answer.state,
                "why": row.answer.why,
                "do": row.answer.do or None,
            }
            for row in rows
        ],
    }
