"""Changes the source of a program so that a statement is skipped after its first execution: pure functions.

What a skipped statement assigned keeps the value of its first execution, where nothing else has assigned it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.core.errors import Notice
from profiler.core.masking import masked_source
from profiler.run.trials import SkippedLine

_GATE: Final = "_profiler_gate"
_GATE_FILE: Final = Path(__file__).with_name("gate.py")
"""Its text is put at the head of each changed file."""
_TRAINING: Final = "backward"
"""Method whose call makes a loop a training loop."""

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Loop = ast.For | ast.AsyncFor | ast.While
_FIXED: Final = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Pass,
)  # fmt: skip
_Choose = Callable[[Sequence[ast.stmt], frozenset[str]], tuple[ast.FunctionDef | None, ast.stmt | Notice]]
"""The function and the statement to skip for a line."""
_LEAVING: Final = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await)


@dataclass(frozen=True, slots=True)
class ChangedSource:
    """The new text of a file, and what in it is skipped."""

    text: str
    skipped: tuple[SkippedLine, ...]
    """In the order of their numbers, by which the program reports them; the first one has the number `first`."""
    refusals: tuple[Notice, ...]
    """Why other lines cannot be skipped."""


def skip_lines(text: str, lines: Sequence[int], file: str, first: int = 0, *, only_line: bool = False) -> ChangedSource:
    """Skip the statements that hold these lines, each after its first execution.

    Of nested loops that do not train, the outermost one is skipped as a whole. A function that only computes a value is
    skipped as a whole: later calls return the first value. If gradients are computed through that value, which only the
    program can tell, the statement in it is skipped instead.

    :param only_line: skip neither: only the innermost statement.
    :raises SyntaxError: the text is not Python.
    """

    def choose(path: Sequence[ast.stmt], trainers: frozenset[str]) -> tuple[ast.FunctionDef | None, ast.stmt | Notice]:
        function = None if only_line else _value_function(path, trainers)
        return function, _statement(path, trainers, only_line=only_line)

    return _change(text, lines, file, first, choose)


def stop_threads_at(text: str, lines: Sequence[int], file: str, first: int = 0) -> ChangedSource:
    """Stop for good every thread but the main one that comes to these lines a second time.

    :raises SyntaxError: the text is not Python.
    """
    return _change(text, lines, file, first, None)


def _change(text: str, lines: Sequence[int], file: str, first: int, choose: _Choose | None) -> ChangedSource:
    """Change a text at these lines; without `choose`, stop threads at the innermost statements."""
    tree = ast.parse(text)
    trainers = _training_functions(tree)
    chosen: dict[ast.stmt, None] = {}
    refusals = []
    for line in lines:
        path = _path_to(tree, line)
        function, answer = choose(path, trainers) if choose else (None, _innermost(path))
        if function is not None:
            chosen[function] = None
        if not isinstance(answer, Notice):
            chosen[answer] = None
        elif function is None:
            refusals.append(Notice(answer.code, {"file": file, "line": line, **answer.values}))
    functions = [each for each in chosen if isinstance(each, ast.FunctionDef)]
    statements = [each for each in chosen if each not in functions]
    outer = [
        *functions,
        *(each for each in statements if not any(each in ast.walk(other) for other in statements if other is not each)),
    ]
    source = text.split("\n")  # as Python counts lines: form feeds do not end one
    skipped = tuple(
        SkippedLine(file, each.lineno, masked_source(source[each.lineno - 1].strip()), each.end_lineno or each.lineno)
        for each in outer
    )
    numbers = {each: number for number, each in enumerate(outer, first)}
    names = {each: _names(each, _path_to(tree, each.lineno), tree) for each in statements}
    _Rewriter(numbers, names, is_thread=choose is None).visit(tree)
    _insert_gate(tree)
    return ChangedSource(ast.unparse(ast.fix_missing_locations(tree)), skipped, tuple(refusals))


# ---------------------------------------------------------------- which statement


def _path_to(tree: ast.Module, line: int) -> list[ast.stmt]:
    """Return the statements that contain the line, from the outermost to the innermost one."""
    path: list[ast.stmt] = []
    node: ast.AST = tree
    while True:
        inner = next((each for each in _statements_below(node) if each.lineno <= line <= (each.end_lineno or 0)), None)
        if inner is None:
            return path
        path.append(inner)
        node = inner


def _statements_below(node: ast.AST) -> Iterator[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.excepthandler | ast.match_case):
            yield from _statements_below(child)


def _innermost(path: Sequence[ast.stmt]) -> ast.stmt | Notice:
    if not path:
        return Notice("no-statement")
    return Notice("definition") if isinstance(path[-1], _FIXED) else path[-1]


def _statement(path: Sequence[ast.stmt], trainers: frozenset[str], *, only_line: bool) -> ast.stmt | Notice:
    """Return the statement to skip for a line, or why there is none."""
    innermost = _innermost(path)
    if isinstance(innermost, Notice):
        return innermost
    function = max((index for index, each in enumerate(path) if isinstance(each, Function)), default=-1)
    inside = path[function + 1 :]
    if any(isinstance(each, ast.ClassDef) for each in inside):
        return Notice("definition")
    loops = [each for each in inside if isinstance(each, Loop)]
    if function < 0 and not loops:
        return Notice("no-loop")
    for loop in loops:
        if not only_line and not _trains(loop, trainers) and not _leaves(loop):
            return loop
    if _trains(innermost, trainers):
        return Notice("training")
    if isinstance(innermost, ast.Return):
        scope = path[function]
        is_value = innermost.value is not None and not any(isinstance(each, _LEAVING) for each in _own(innermost.value))
        return innermost if is_value and not _is_generator(scope) else Notice("leaves")
    if _leaves(innermost):
        return Notice("leaves")
    return innermost


def _value_function(path: Sequence[ast.stmt], trainers: frozenset[str]) -> ast.FunctionDef | None:
    """Return the innermost function around a line, if all that it does is to compute the value that it returns."""
    functions = [each for each in path if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    if not functions or path[-1] is functions[-1] or not isinstance(functions[-1], ast.FunctionDef):
        return None
    function = functions[-1]
    last = function.body[-1]
    if not isinstance(last, ast.Return) or last.value is None or _is_generator(function):
        return None
    for node in (node for each in function.body for node in ast.walk(each)):
        # more than local variables changes: a call for its effect, a part of an object, a global variable
        is_effect = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
        is_part = isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load)
        if is_effect or is_part or isinstance(node, ast.Global | ast.Nonlocal):
            return None
    return None if any(_trains(each, trainers) for each in function.body) else function


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the node and all below it, without the bodies of functions that are defined there."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function | ast.ClassDef):
            yield from _own(child)


def _is_generator(scope: ast.stmt) -> bool:
    if isinstance(scope, ast.AsyncFunctionDef):
        return True
    return any(
        isinstance(each, ast.Yield | ast.YieldFrom) for child in ast.iter_child_nodes(scope) for each in _own(child)
    )


def _leaves(statement: ast.stmt) -> bool:
    """Return whether a statement may leave the block that contains it: then the block never ends if it is skipped."""
    return any(isinstance(each, _LEAVING) for each in _own(statement)) or _breaks(statement)


def _breaks(node: ast.AST) -> bool:
    if isinstance(node, ast.Break | ast.Continue):
        return True
    if isinstance(node, Loop):
        return any(_breaks(each) for each in node.orelse)
    return any(_breaks(each) for each in ast.iter_child_nodes(node) if not isinstance(each, Function | ast.ClassDef))


def _callee(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _trains(node: ast.AST, trainers: frozenset[str]) -> bool:
    """Return whether gradients are computed in it."""
    return any(_callee(each) in trainers for each in _own(node))


def _training_functions(tree: ast.Module) -> frozenset[str]:
    """Return the names of functions in which gradients are computed, directly or by another one."""
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    names = {_TRAINING}
    while (
        new := {each.name for each in functions if any(_trains(part, frozenset(names)) for part in each.body)} - names
    ):
        names |= new
    return frozenset(names)


def _stored(node: ast.AST) -> list[str]:
    """Return the names that a statement assigns."""
    parts = list(_own(node))
    local = {name for each in parts if isinstance(each, ast.comprehension) for name in ast.walk(each.target)}
    names = (each for each in parts if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    return list(dict.fromkeys(each.id for each in names if each not in local))


@dataclass(frozen=True, slots=True)
class _Names:
    """What a statement assigns."""

    kept: list[str]
    """Names that are read outside of it."""
    only_here: list[str]
    """Those of them that nothing else assigns before it, within the same loop or call."""


def _names(statement: ast.stmt, path: Sequence[ast.stmt], tree: ast.Module) -> _Names:
    outside = path[: path.index(statement)]
    scope: ast.AST = next((each for each in reversed(outside) if isinstance(each, Function)), tree)
    within = set(ast.walk(statement))
    reads = {
        each.id
        for each in ast.walk(scope)
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Store) and each not in within
    }
    kept = [name for name in _stored(statement) if name in reads]
    block: ast.AST | None = next((each for each in reversed(outside) if isinstance(each, Loop | Function)), None)
    before = {
        name
        for each in (_own(block) if block is not None else ())
        if isinstance(each, ast.stmt) and each is not block and each.lineno < statement.lineno and each not in outside
        for name in _stored(each)
    }
    return _Names(kept, [name for name in kept if name not in before])


# ---------------------------------------------------------------- the change


class _Rewriter(ast.NodeTransformer):
    def __init__(self, numbers: dict[ast.stmt, int], names: dict[ast.stmt, _Names], *, is_thread: bool) -> None:
        self._numbers = numbers
        self._names = names
        self._is_thread = is_thread

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        if isinstance(node, ast.FunctionDef) and node in self._numbers:
            number = self._numbers[node]
            self.generic_visit(node)
            return _skippable_function(node, number)
        if isinstance(node, ast.stmt) and node in self._numbers:
            number = self._numbers[node]
            if self._is_thread:
                return [*_parsed(f"{_GATE}.stop({number})"), node]
            if isinstance(node, ast.Return):
                return _skippable_return(node, number)
            return _skippable(node, number, self._names[node])
        changed: ast.AST = self.generic_visit(node)
        return changed


def _parsed(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def _skippable(statement: ast.stmt, number: int, assigned: _Names) -> list[ast.stmt]:
    """Return the statement behind a gate, which restores what it assigned."""
    names, only_here = assigned.kept, assigned.only_here
    lines = [
        f"if {_GATE}.begin({number}):",
        "    try:",
        "        pass",
        "    finally:",
        f"        {_GATE}.end({number})",
        f"    {_GATE}.keep({number}, {names!r}, {only_here!r}, locals())" if names else "",
        "else:",
        "    pass",
    ]
    for name in names:
        lines.append(f"    if {name!r} not in locals() and {_GATE}.has({number}, {name!r}):")
        lines.append(f"        {name} = {_GATE}.value({number}, {name!r})")
    gated = _parsed("\n".join(lines))
    _block(gated[0]).body = [statement]
    return gated


def _skippable_function(function: ast.FunctionDef, number: int) -> ast.FunctionDef:
    """Return the function, whose later calls return the value of the first one."""
    _Returns(number).visit(function)
    lines = [
        f"if not {_GATE}.begin({number}):",
        f"    return {_GATE}.value({number}, 'returned')",
        "try:",
        "    pass",
        "finally:",
        f"    {_GATE}.end({number})",
    ]
    first, block = _parsed("\n".join(lines))
    assert isinstance(block, ast.Try)
    has_text = ast.get_docstring(function, clean=False) is not None
    block.body = function.body[has_text:]
    function.body = [*function.body[:has_text], first, block]
    return function


class _Returns(ast.NodeTransformer):
    """Has what a function returns remembered, without the functions in it."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._is_outermost = True

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, Function | ast.ClassDef) and not self._is_outermost:
            return node
        self._is_outermost = False
        if isinstance(node, ast.Return):
            value = node.value or ast.Constant(None)
            gate = ast.Attribute(ast.Name(_GATE, ast.Load()), "returned", ast.Load())
            return ast.copy_location(ast.Return(ast.Call(gate, [ast.Constant(self._number), value], [])), node)
        changed: ast.AST = self.generic_visit(node)
        return changed


def _skippable_return(statement: ast.Return, number: int) -> list[ast.stmt]:
    name = f"{_GATE}_value"
    lines = [
        f"if {_GATE}.begin({number}):",
        "    try:",
        f"        {name} = None",
        "    finally:",
        f"        {_GATE}.end({number})",
        f"    {_GATE}.keep({number}, [{name!r}], [{name!r}], locals())",
        f"    return {name}",
        f"return {_GATE}.value({number}, {name!r})",
    ]
    gated = _parsed("\n".join(lines))
    assignment = _block(gated[0]).body[0]
    assert isinstance(assignment, ast.Assign)
    assert statement.value is not None  # a return without a value is refused
    assignment.value = statement.value
    return gated


def _block(gate: ast.stmt) -> ast.Try:
    assert isinstance(gate, ast.If)
    block = gate.body[0]
    assert isinstance(block, ast.Try)
    return block


def _insert_gate(tree: ast.Module) -> None:
    """Put the class of gate.py behind what must come first in a file."""
    first = 0
    for index, each in enumerate(tree.body):
        is_docstring = index == 0 and isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
        if is_docstring or (isinstance(each, ast.ImportFrom) and each.module == "__future__"):
            first = index + 1
    gate = ast.parse(_GATE_FILE.read_text(encoding="utf-8")).body
    tree.body[first:first] = gate[2:]  # without its docstring and the name of its file
