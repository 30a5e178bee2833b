"""Text that is safe to print: without control characters, and in ASCII where a terminal has no more."""

from __future__ import annotations

import unicodedata
from typing import Final

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
