"""Draws a running program for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from profiler.diagnose.model import LiveView
from profiler.report.live_text import live_lines, live_sentence, live_title
from profiler.report.render.drawing import Terminal

if TYPE_CHECKING:
    from rich.console import Group

_LABEL: Final = 9
"""Columns for the label of a line."""


def live_panel(view: LiveView, *, width: int, unicode: bool = True, leave: str = "") -> Group:
    """Draw the program, what limits it, and its figures.

    :param leave: how the panel is left.
    """
    from rich.console import Group
    from rich.table import Table

    terminal = Terminal(width, unicode=unicode)
    program, facts = live_title(view.snapshot)
    head = terminal.text(program, "bold").append_text(terminal.text(f"  {facts}", "dim"))
    head.no_wrap, head.overflow = True, "ellipsis" if unicode else "crop"
    lines = Table.grid(padding=(0, 1))
    lines.add_column(width=_LABEL, no_wrap=True)
    lines.add_column(overflow="fold")
    before = ""
    for label, line in live_lines(view):
        lines.add_row(terminal.text("" if label == before else label, "dim"), terminal.text(line))
        before = label
    last = (terminal.text(""), terminal.text(leave, "dim")) if leave else ()
    return Group(head, terminal.text(live_sentence(view.diagnosis), "bold"), terminal.text(""), lines, *last)
