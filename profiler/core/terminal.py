"""Makes texts safe for terminals: without control characters, in ASCII where there is no more. Names this program, and
shows what it is doing."""

from __future__ import annotations

import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PROGRAM: Final = "training-profiler"
"""The command that the package installs."""
_ASCII: Final = str.maketrans({"×": "x", "µ": "u", "…": "..", "·": "-", "\u2009": " ", "–": "-", "’": "'"})


def plain(text: str) -> str:
    """Text without what would command a terminal, break a file or turn the reading direction."""
    encodable = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(
        " " if char in "\n\t" else "\ufffd" if unicodedata.category(char) in {"Cc", "Cf"} else char
        for char in encodable
    )


def ascii_text(text: str) -> str:
    """`text` in ASCII: units and punctuation by their common substitutes, anything else as question marks."""
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def called_as() -> str:
    """Tell how this program was called, for commands to copy: `training-profiler` or `python -m profiler`."""
    return PROGRAM if PurePath(sys.argv[0] if sys.argv else "").name == PROGRAM else "python -m profiler"


_CONTINUED: Final = " " * 4
"""Indentation of a broken line's remainder."""


def print_line(console: Console, text: Text) -> None:
    """Print a line of words: in a terminal broken between them, and elsewhere whole."""
    if not console.is_terminal or text.cell_len <= console.width:
        console.print(text)
        return
    from rich.text import Text

    for number, line in enumerate(text.wrap(console, console.width - len(_CONTINUED))):
        line.rstrip()
        console.print(line if not number else Text(_CONTINUED).append_text(line))


_ignore_closed: Final = partial(suppress, OSError, SystemExit)
"""A closed terminal ends no work. SystemExit is rich's answer to a closed pipe."""


@contextmanager
def progress(console: Console) -> Iterator[Callable[[str], None]]:
    """A function that shows what begins now: in a line that changes; without a terminal in a new line."""
    if not console.is_terminal:
        begin = time.monotonic()

        def new_line(text: str) -> None:
            with _ignore_closed():
                print(f"{text} ({timedelta(seconds=int(time.monotonic() - begin))})", file=sys.stderr)

        yield new_line
        return
    from rich.progress import Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    # The first column may wrap, so that a narrow terminal does not cut the time behind it.
    columns = TextColumn("{task.description}", markup=False, table_column=Column()), TimeElapsedColumn()
    live = Progress(*columns, console=console, transient=True)
    task = live.add_task("", total=None)

    def change_line(text: str) -> None:
        with _ignore_closed():
            live.update(task, description=text)

    with _ignore_closed():
        live.start()
    try:
        yield change_line
    finally:
        with _ignore_closed():
            live.stop()
