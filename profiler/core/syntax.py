"""Reads single lines of a program's source."""

from __future__ import annotations

import ast


def parsed_line(source: str) -> ast.Module | None:
    """The syntax tree of a line; None where it is only a part of a statement."""
    try:
        return ast.parse(source.strip())
    except SyntaxError:
        return None
