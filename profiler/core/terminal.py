"""Makes texts safe for terminals: without control characters, in ASCII where there is no more. Names this program."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import PurePath
from typing import Final

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
    """How this program was called, for commands to copy: `training-profiler` or `python -m profiler`."""
    return PROGRAM if PurePath(sys.argv[0] if sys.argv else "").name == PROGRAM else "python -m profiler"
