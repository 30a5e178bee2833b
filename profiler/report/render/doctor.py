"""Draws what can be measured here as a table for the terminal; commands to copy stand on lines of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from profiler.core.capability import NO, NOT_KNOWN, PARTLY, YES, Capability
from profiler.core.units import ASCII
from profiler.report.quantities import plain

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

SCHEMA: Final = "doctor/1"
_COLOURS: Final = {YES: "green", PARTLY: "yellow", NO: "red", NOT_KNOWN: "magenta"}
_WIDE: Final = 130
"""Columns from which what to do has a column of its own."""
_ASCII: Final = str.maketrans({**ASCII})


def doctor_view(rows: Sequence[Capability], *, width: int, unicode: bool = True) -> Group:
    """The table, and in a line whether recording works."""
    from rich import box
    from rich.console import Group
    from rich.table import Table

    wide = width >= _WIDE
    table = Table(box=box.SIMPLE_HEAD if unicode else box.ASCII, pad_edge=False, show_edge=False)
    table.add_column(_text("what", unicode, "dim"), no_wrap=width >= 80)
    table.add_column(_text("measured", unicode, "dim"), no_wrap=width >= 80)
    table.add_column(_text("why", unicode, "dim"), overflow="fold", ratio=3 if wide else None)
    if wide:
        table.add_column(_text("what to do", unicode, "dim"), overflow="fold", ratio=2)
    for row in rows:
        answer = row.answer
        why = _text(answer.why, unicode)
        if answer.do and not wide:
            why.append("\n")
            why.append_text(_text(f"-> {answer.do}", unicode, "bold"))
        title = _text(row.title, unicode, "bold" if row.needed else "")
        cells = [title, _text(answer.state, unicode, _COLOURS[answer.state]), why]
        table.add_row(*cells, *([_text(answer.do, unicode, "bold")] if wide else []))
    return Group(table, _text("", unicode), _text(conclusion(rows), unicode, "bold"))


def conclusion(rows: Sequence[Capability]) -> str:
    """Whether recording at level standard works, in a sentence."""
    lacking = [row for row in rows if row.lacking]
    if not lacking:
        return "Recording works at level standard."
    names = ", ".join(row.title for row in lacking)
    first = next((row.answer.do for row in lacking if row.answer.do), "")
    return f"Recording at level standard lacks: {names}." + (f" First: {first}" if first else "")


def doctor_json(rows: Sequence[Capability]) -> dict[str, Any]:
    """The keys of docs/json.md, "doctor"."""
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


def _text(text: str, unicode: bool, style: str = "") -> Text:
    from rich.text import Text

    text = plain(text)
    if not unicode:
        text = text.translate(_ASCII).encode("ascii", "replace").decode("ascii")
    return Text(text, style)
