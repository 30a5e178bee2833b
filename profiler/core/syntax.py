"""Reads lines and statements of a program's source."""

from __future__ import annotations

import ast
import builtins
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_COMPUTING: Final = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.operator)
"""What can make torch do something; an operator alone is that of an assignment such as `x += y`."""


def parsed_line(source: str) -> ast.Module | None:
    """Return the syntax tree of a line; None where it is only a part of a statement."""
    return _parsed(source.strip())


def statements(source: str) -> Iterator[range]:
    """Yield the lines of each statement of a file that computes something, except definitions; of a block, those of its
    head."""
    tree = _parsed(source)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.stmt) and not isinstance(node, _DEFINITIONS):
            parts = [each for each in ast.iter_child_nodes(node) if each is not getattr(node, "annotation", None)]
            block = [each.lineno for each in parts if isinstance(each, ast.stmt)]
            head = [each for each in parts if not isinstance(each, (ast.stmt, ast.excepthandler, ast.match_case))]
            if any(isinstance(each, _COMPUTING) for part in head for each in ast.walk(part)):
                yield range(node.lineno, max(node.lineno, *block[:1] or [(node.end_lineno or 0) + 1]))


class Block(NamedTuple):
    """Lines that run only where a certain one of them does."""

    lines: range
    is_whole: bool
    """Whether these are all lines of their function."""


def block_of(source: str, line: int) -> Block | None:
    """Return the lines of a function that run only if a line of it does; None where there is no such statement, or the
    source is nested too deeply."""
    try:
        return _block_of(source, line)
    except RecursionError:  # an `elif` is nested in the one above it
        return None


def _block_of(source: str, line: int) -> Block | None:
    node: ast.AST | None = _parsed(source)
    path: list[tuple[ast.AST, list[ast.stmt], int]] = []
    while node is not None:
        places = ((node, block, at) for block in _blocks(node) for at in range(len(block)))
        inner = next((each for each in places if _has_line(each[1][each[2]], line)), None)
        path += [inner] if inner else []
        node = inner[1][inner[2]] if inner else None
    last = line
    for owner, block, at in reversed(path):
        begin = next((number + 1 for number in reversed(range(at)) if _leaves(block[number])), 0)
        first, last = block[begin].lineno, max(last, block[-1].end_lineno or 0)
        is_whole = not begin and isinstance(owner, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef))
        # a with and a try have nothing that leaves them out, so what stands beside them runs too
        is_passed = isinstance(owner, (ast.With, ast.AsyncWith)) or (isinstance(owner, ast.Try) and block is owner.body)
        if is_whole or begin or not is_passed:
            return Block(range(first, last + 1), is_whole)
    return None


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements of a statement, also those of its handlers and cases."""
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, (ast.ExceptHandler, ast.match_case)):
                    yield each.body


def _has_line(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or 0)


def _leaves(statement: ast.stmt, *, in_loop: bool = False) -> bool:
    """Tell whether a statement may leave out the ones that follow it."""
    if isinstance(statement, ast.Return):
        return True
    if isinstance(statement, (ast.Break, ast.Continue)):
        return not in_loop
    if isinstance(statement, _DEFINITIONS):
        return False
    in_loop = in_loop or isinstance(statement, (ast.For, ast.AsyncFor, ast.While))
    return any(_leaves(each, in_loop=in_loop) for block in _blocks(statement) for each in block)


def _parsed(source: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # such as of an escape sequence that the program writes
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):  # ValueError: of a null character
        return None


def line_nodes(source: str) -> Iterator[ast.AST]:
    """Yield all nodes of the syntax tree of a line, also of one that begins a block, such as `with open(path) as
    file:`, or that is all between the brackets of a comprehension; none where it is another part of a statement."""
    tree = parsed_line(source) or parsed_line(f"{source.strip()}\n pass") or parsed_line(f"[{source.strip()}]")
    yield from ast.walk(tree) if tree else ()


def called_functions(source: str) -> list[str]:
    """Return the functions that a line calls, as the line names them, such as `torch.cat`."""
    return [ast.unparse(node.func) for node in line_nodes(source) if isinstance(node, ast.Call)]


_Blocks = tuple[tuple[int, str], ...]
"""The blocks around a line that may not run, such as the body of an `if`: their lines and their parts."""


class _Set(NamedTuple):
    """A line that sets a variable or an attribute."""

    line: int
    blocks: _Blocks
    called: str
    """The last name of what the line calls for it; empty: it is no call, such as a parameter."""


class Objects:
    """Finds where a file makes the objects whose methods its lines call, or over which they loop."""

    def __init__(self, source: str) -> None:
        self._used = defaultdict[int, list[tuple[str, _Blocks, tuple[str, ...]]]](list)
        self._set = defaultdict[tuple[str, str], list[_Set]](list)
        """Scope and name -> the lines that set it."""
        if (tree := _parsed(source)) is not None:
            self._read(tree)

    def made(self, line: int) -> Iterator[tuple[int, str]]:
        """Yield the lines that make objects which this line uses, each with the class or the function that it calls.

        `self.encoder(rows)` leads to `self.encoder = Encoder(...)`, and `for batch in loader:` to `loader = ...`. What
        may be made at several lines, and what this file does not make, such as a module, is line 0.
        """
        for name, blocks, scopes in self._used.get(line, ()):
            lines = next((self._set[scope, name] for scope in reversed(scopes) if (scope, name) in self._set), [])
            is_attribute = name.startswith("self.")
            lines = lines if is_attribute else [each for each in lines if each.line < line][-1:]
            if (
                len(lines) == 1
                and lines[0].called
                and (is_attribute or lines[0].blocks == blocks[: len(lines[0].blocks)])
            ):
                yield lines[0].line, lines[0].called
            else:
                yield 0, ""

    def _read(self, tree: ast.AST) -> None:
        todo: list[tuple[ast.AST, _Blocks, tuple[str, ...]]] = [(tree, (), ("",))]
        while todo:  # without recursion: expressions may be deep
            node, blocks, scopes = todo.pop()
            match node:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                    inner = f"{node.lineno}:{node.col_offset}"
                    # attributes of self are the same in all methods of a class
                    scopes = (*scopes, f"class {inner}" if isinstance(node, ast.ClassDef) else inner)
                    for each in ast.walk(node.args) if not isinstance(node, ast.ClassDef) else ():
                        if isinstance(each, ast.arg):
                            self._set[scopes[-1], each.arg].append(_Set(0, (), ""))
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._set_names(target, value, blocks, scopes)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._set_names(target, value, blocks, scopes)
                case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                    self._set_names(target, value, blocks, scopes)
                case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
                    self._set_names(target, ast.Constant(None, lineno=node.lineno), blocks, scopes)
                    for each in value.args if isinstance(value, ast.Call) else [value]:
                        self._use(each, node.lineno, blocks, scopes)
                case ast.Call(func=function):
                    self._use(function, node.lineno, blocks, scopes)
            todo += [(child, inside, scopes) for child, inside in reversed([*_children(node, blocks)])]

    def _use(self, node: ast.expr, line: int, blocks: _Blocks, scopes: tuple[str, ...]) -> None:
        """Note the variable or the attribute of self in which the object of an expression is."""
        while isinstance(node, ast.Attribute) and not _variable(node):
            node = node.value
        if (name := _variable(node)) and name not in vars(builtins):  # such as enumerate
            self._used[line].append((name, blocks, scopes))

    def _set_names(self, target: ast.expr, value: ast.expr, blocks: _Blocks, scopes: tuple[str, ...]) -> None:
        called = _last_name(value.func) if isinstance(value, ast.Call) else ""
        for each in target.elts if isinstance(target, ast.Tuple | ast.List) else (target,):
            if name := _variable(each):
                in_class = (scope for scope in reversed(scopes) if scope.startswith("class "))
                scope = next(in_class, "") if name.startswith("self.") else scopes[-1]
                self._set[scope, name].append(_Set(value.lineno, blocks, called))


def _children(node: ast.AST, blocks: _Blocks) -> Iterator[tuple[ast.AST, _Blocks]]:
    for part, inside in ast.iter_fields(node):
        deeper = (*blocks, (node.lineno, part)) if isinstance(node, _CONDITIONS) and part in _BODIES else blocks
        for child in inside if isinstance(inside, list) else [inside]:
            if isinstance(child, ast.AST):
                yield child, deeper


_CONDITIONS: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.Match)
_BODIES: Final = ("body", "orelse", "handlers", "finalbody", "cases")


def _variable(node: ast.expr) -> str:
    """Name a variable or an attribute of self; empty: it is another expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name("self"), attr=name):
            return f"self.{name}"
    return ""


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
