"""Parses a file of the program: which statements give a name its value, and who calls a function."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any, Final

_ADDING: Final = frozenset({"append", "extend", "add", "insert", "update", "appendleft"})
_COMPREHENSION_CODE: Final = {
    ast.ListComp: "<listcomp>", ast.SetComp: "<setcomp>", ast.DictComp: "<dictcomp>", ast.GeneratorExp: "<genexpr>"
}  # fmt: skip
COMPREHENSIONS: Final = tuple(_COMPREHENSION_CODE)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES: Final = (*_FUNCTIONS, *COMPREHENSIONS, ast.Module)

_PARSED: Final = "<parsed by the profiler>"
_SILENT: Final = ("ignore", None, Warning, re.compile(re.escape(_PARSED)), 0)
"""A filter of warnings about the source, such as invalid escape sequences: Python gave them when it compiled it."""

Position = tuple[int, int]


@dataclass(slots=True)
class Binding:
    """A statement that gives a name a value.

    :param end: where the statement ends; the name has the value from there on.
    :param block: the list of statements that it stands in.
    :param replaces: whether the name loses its value of before: not for `x += value` and `x.append(value)`.
    """

    end: Position
    value: ast.AST
    block: object
    replaces: bool


class SyntaxTree:
    """The syntax tree of a file."""

    def __init__(self, text: str) -> None:
        self.tree = _parse(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.blocks: dict[ast.AST, object] = {}
        """Statement -> the list of statements that it stands in."""
        self.expressions: dict[tuple[int, int, int, int], ast.AST] = {}
        """Position -> the outermost expression there; of a statement with a condition, that condition."""
        self.calls: dict[str, list[ast.Call]] = {}
        """Name of a function or method -> its calls."""
        self.functions: dict[str, list[Any]] = {}
        self._bindings: dict[ast.AST, dict[str, list[Binding]]] = {}
        for node in ast.walk(self.tree):
            for _, value in ast.iter_fields(node):
                for child in value if isinstance(value, list) else (value,):
                    if isinstance(child, ast.AST):
                        self.parents[child] = node
                        self.blocks[child] = value
            if isinstance(node, (ast.expr, ast.If, ast.While, ast.Assert)):
                at = node.lineno, node.end_lineno or 0, node.col_offset, node.end_col_offset or 0
                self.expressions.setdefault(at, node if isinstance(node, ast.expr) else node.test)
            if isinstance(node, ast.Call) and (name := last_name(node.func)):
                self.calls.setdefault(name, []).append(node)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions.setdefault(node.name, []).append(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The node, then what contains it, outward."""
        current: ast.AST | None = node
        while current is not None:
            yield current
            current = self.parents.get(current)

    def scope(self, node: ast.AST) -> ast.AST:
        """The function, comprehension or module that `node` is evaluated in."""
        return next((outer for outer in islice(self.ancestors(node), 1, None) if isinstance(outer, _SCOPES)), self.tree)

    def class_of(self, function: ast.AST) -> ast.ClassDef | None:
        parent = self.parents.get(function)
        return parent if isinstance(parent, ast.ClassDef) else None

    def bindings(self, scope: ast.AST) -> dict[str, list[Binding]]:
        found = self._bindings.get(scope)
        if found is None:
            found = self._bindings[scope] = {}
            for node in own_nodes(scope):
                for target, value, replaces, end in _assignments(node):
                    for name, part, whole in _names(target, value):
                        binding = Binding(end, part, self.blocks.get(node), replaces=replaces and whole)
                        found.setdefault(name, []).append(binding)
        return found


def _parse(text: str) -> ast.Module:
    """Parse without warnings. `warnings.catch_warnings` would make the program's own warnings appear again."""
    filters: Any = warnings.filters
    filters.insert(0, _SILENT)
    try:
        return ast.parse(text, _PARSED)
    finally:
        with suppress(ValueError):  # the program has replaced the filters meanwhile
            filters.remove(_SILENT)


def _end(node: Any) -> Position:
    return node.end_lineno, node.end_col_offset


def last_name(function: ast.AST) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def dotted(target: ast.AST) -> str:
    """`x`, or `self.x`; empty for other expressions."""
    if isinstance(target, ast.Name):
        return target.id
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        return f"{target.value.id}.{target.attr}"
    return ""


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope without those of the scopes in it."""
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (*_SCOPES, ast.ClassDef)):
            pending += ast.iter_child_nodes(node)


def _names(target: Any, value: Any) -> Iterator[tuple[str, Any, bool]]:
    """(name, its value, whether all of it is assigned) for each name in the target of an assignment."""
    if isinstance(target, (ast.Tuple, ast.List)):
        pairs = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        for number, each in enumerate(target.elts):
            yield from _names(each, value.elts[number] if pairs else value)
        return
    whole = True
    while isinstance(target, (ast.Starred, ast.Subscript)):
        whole = whole and isinstance(target, ast.Starred)
        target = target.value
    name = target if isinstance(target, str) else dotted(target)
    if name:
        yield name, value, whole


def _assignments(node: Any) -> Iterator[tuple[Any, Any, bool, Position]]:
    """(target, value, whether it replaces the value of before, where it takes effect) for each name that it binds."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign)) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else (node.target,):
            yield target, node.value, not isinstance(node, ast.AugAssign), _end(node)
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield node.target, node.iter, True, _end(node.iter)
    elif isinstance(node, ast.comprehension):
        yield node.target, node.iter, True, (0, 0)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, node.context_expr, True, _end(node.context_expr)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], node, True, _end(node)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name, node, True, (0, 0)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.value.args:
        function = node.value.func
        if isinstance(function, ast.Attribute) and function.attr in _ADDING:
            yield function.value, node.value.args[-1], False, _end(node)


@dataclass(slots=True)
class Scope:
    """A scope in which expressions are evaluated.

    :param names: the globals of its module.
    :param frame: the frame that runs it, if one does; the `depth`-th caller of the one that reads.
    :param arguments: the origins of its arguments, where the search followed a call into it.
    """

    source: SyntaxTree
    node: ast.AST
    names: Mapping[str, Any]
    frame: FrameType | None = None
    depth: int = 0
    arguments: Mapping[str, int] | None = None

    def outer(self) -> Scope:
        """The scope around it, whose names it can see."""
        source, frame, depth = self.source, None, self.depth
        node = source.scope(self.node)
        if isinstance(self.node, COMPREHENSIONS):
            frame = self.frame
            if frame is not None and frame.f_code.co_name == _COMPREHENSION_CODE[type(self.node)]:
                frame, depth = frame.f_back, depth + 1
            return Scope(source, node, self.names, frame, depth, self.arguments)
        return Scope(source, node, self.names, frame, depth)

    def parameters(self) -> list[str]:
        """Names of its positional parameters."""
        arguments: ast.arguments | None = getattr(self.node, "args", None)
        if not isinstance(arguments, ast.arguments):
            return []
        return [each.arg for each in (*arguments.posonlyargs, *arguments.args)]

    def keywords(self) -> list[str]:
        arguments: ast.arguments | None = getattr(self.node, "args", None)
        return [each.arg for each in arguments.kwonlyargs] if isinstance(arguments, ast.arguments) else []

    def star(self) -> str:
        arguments: ast.arguments | None = getattr(self.node, "args", None)
        return arguments.vararg.arg if isinstance(arguments, ast.arguments) and arguments.vararg else ""


def child_expressions(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions that a node is made of."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, (ast.keyword, ast.Slice)):
            yield from child_expressions(child)


def imported(node: ast.AST, name: str) -> Any:
    """What an import within a function binds to `name`."""
    if isinstance(node, ast.Import):
        full = next((each.name for each in node.names if each.asname == name), name)
        return sys.modules.get(full)
    if isinstance(node, ast.ImportFrom):
        original = next((each.name for each in node.names if (each.asname or each.name) == name), name)
        return getattr(sys.modules.get(node.module or ""), original, None)
    return None
