"""Reads lines and statements of a program's source."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from typing import Final

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_COMPUTING: Final = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.operator)
"""What can make torch do something; an operator alone is that of an assignment such as `x += y`."""


def parsed_line(source: str) -> ast.Module | None:
    """The syntax tree of a line; None where it is only a part of a statement."""
    return _parsed(source.strip())


def statements(source: str) -> Iterator[range]:
    """The lines of each statement of a file that computes something, except definitions; of a block, those of its
    head."""
    tree = _parsed(source)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.stmt) and not isinstance(node, _DEFINITIONS):
            parts = [each for each in ast.iter_child_nodes(node) if each is not getattr(node, "annotation", None)]
            block = [each.lineno for each in parts if isinstance(each, ast.stmt)]
            head = [each for each in parts if not isinstance(each, (ast.stmt, ast.excepthandler, ast.match_case))]
            if any(isinstance(each, _COMPUTING) for part in head for each in ast.walk(part)):
                yield range(node.lineno, max(node.lineno, *block[:1] or [(node.end_lineno or 0) + 1]))


def _parsed(source: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # such as of an escape sequence that the program writes
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):  # ValueError: of a null character
        return None


def line_nodes(source: str) -> Iterator[ast.AST]:
    """All nodes of the syntax tree of a line, also of one that begins a block, such as `with open(path) as file:`, or
    that is all between the brackets of a comprehension; none where it is another part of a statement."""
    tree = parsed_line(source) or parsed_line(f"{source.strip()}\n pass") or parsed_line(f"[{source.strip()}]")
    yield from ast.walk(tree) if tree else ()


def called_functions(source: str) -> list[str]:
    """The functions that a line calls, as the line names them, such as `torch.cat`."""
    return [ast.unparse(node.func) for node in line_nodes(source) if isinstance(node, ast.Call)]
