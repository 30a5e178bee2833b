"""Reads single lines of a program's source."""

from __future__ import annotations

import ast
import warnings


def parsed_line(source: str) -> ast.Module | None:
    """The syntax tree of a line; None where it is only a part of a statement."""
    try:
        with warnings.catch_warnings(action="ignore"):  # such as of an escape sequence that the program writes
            return ast.parse(source.strip())
    except (SyntaxError, ValueError):  # ValueError: of a null character
        return None
