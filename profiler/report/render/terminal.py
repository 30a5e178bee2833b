"""Makes text and tables safe for everything that is drawn in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from profiler.core.terminal import ascii_text, plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


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
        """Text that neither commands the terminal nor breaks its encoding; markup in it stays text."""
        from rich.text import Text

        text = plain(text)
        return Text(text if self.unicode else ascii_text(text), style)

    def table(self, columns: Sequence[TextColumn], rows: Iterable[Iterable[Text | str]]) -> Table:
        """A table with a line below its head, which is left out where no column has a title."""
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
    """Whether the console's encoding has more than ASCII."""
    return (console.encoding or "").lower().startswith("utf")
