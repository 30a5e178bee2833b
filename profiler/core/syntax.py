"""Reads single lines of a program's source."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator


def parsed_line(source: str) -> ast.Module | None:
    """The syntax tree of a line; None where it is only a part of a statement."""
    try:
        with warnings.catch_warnings(action="ignore"):  # such as of an escape sequence that the program writes
            return ast.parse(source.strip())
    except (SyntaxError, ValueError, RecursionError):  # ValueError: of a null character
        return None


def line_nodes(source: str) -> Iterator[ast.AST]:
    """All nodes of the syntax tree of a line, also of one that begins a block, such as `with open(path) as file:`; none
    where it is another part of a statement."""
    tree = parsed_line(source) or parsed_line(f"{source.strip()}\n pass")
    yield from ast.walk(tree) if tree else ()


def called_functions(source: str) -> list[str]:
    """The functions that a line calls, as the line names them, such as `torch.cat`."""
    return [ast.unparse(node.func) for node in line_nodes(source) if isinstance(node, ast.Call)]
