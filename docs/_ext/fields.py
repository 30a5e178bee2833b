"""Explains the objects of a JSON report by the dataclasses that they are made of: names, types and docstrings."""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, IntEnum
from functools import cache
from pathlib import PurePath
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from profiler.analyse.model.finding import Finding, RuleText
from profiler.core.errors import Notice
from profiler.report.render.json import LEFT_OUT, WORDS

_TEXTS: Final = {str: "string", Notice: "string", RuleText: "string", PurePath: "string"}
_NAMES: Final = {**_TEXTS, bool: "boolean", int: "integer", float: "number", types.NoneType: "null", Any: "any value"}
_PYTHON: Final = {"None": "null", "True": "true", "False": "false", "->": "→"}


@dataclass(frozen=True)
class Entry:
    """A row of a table: a key of an object with its type, or a value that a text may have."""

    name: str
    type: tuple[str | type, ...]
    """Words and, where an object or an enumeration of its own is meant, the class."""
    meaning: str


def objects(*roots: type) -> list[type]:
    """The dataclasses and enumerations of a document, each after the one that has it."""
    found = dict.fromkeys(roots)
    for root in roots:
        _add(root, found)
    return list(found)


def _add(kind: type, found: dict[type, None]) -> None:
    for entry in entries(kind):
        for each in entry.type:
            if isinstance(each, type) and each not in found:
                found[each] = None
                _add(each, found)


@cache
def entries(kind: type) -> tuple[Entry, ...]:
    """The rows of the table of a class, without what its documents leave out."""
    if issubclass(kind, Enum):
        texts = _docstrings(kind)
        return tuple(Entry(_value(each), (), texts.get(each.name, "")) for each in kind)
    return tuple(_fields(kind))


def _fields(kind: type) -> Iterator[Entry]:
    hints, texts = get_type_hints(kind), _docstrings(kind)
    for each in fields(kind):
        if f"{kind.__name__}.{each.name}" not in LEFT_OUT:
            yield Entry(each.name, tuple(_type(hints[each.name])), texts.get(each.name, ""))
    if kind is Finding:
        of_rule = {entry.name: entry for entry in entries(RuleText)}
        yield from (of_rule[name] for name in WORDS)


def summary(kind: type) -> str:
    """What an object is."""
    return _in_json(inspect.getdoc(kind) or "")


def _docstrings(kind: type) -> Mapping[str, str]:
    """The texts below the attributes of a class."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    texts = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        match statement, following:
            case ((ast.AnnAssign(ast.Name(name)) | ast.Assign([ast.Name(name)])), ast.Expr(ast.Constant(str(text)))):
                texts[name] = _in_json(inspect.cleandoc(text))
    return texts


def _in_json(text: str) -> str:
    """A docstring with the words of JSON in place of those of Python, on one line."""
    return " ".join(re.sub(r"\b(None|True|False)\b|->", lambda found: _PYTHON[found[0]], text).split())


def _value(member: Enum) -> str:
    return member.name.lower().replace("_", "-") if isinstance(member, IntEnum) else str(member.value)


def _type(hint: Any) -> Iterator[str | type]:
    """`list of numbers`, `Cell or null`, as words and classes."""
    arguments = get_args(hint)
    match get_origin(hint):
        case None:
            is_object = isinstance(hint, type) and hint not in _TEXTS and (is_dataclass(hint) or issubclass(hint, Enum))
            yield hint if is_object else _NAMES[hint]
        case origin if origin in (Union, types.UnionType):
            yield from _joined(arguments, " or ")
        case origin if origin is Literal:
            yield " or ".join(f"`{each}`" for each in arguments)
        case origin if origin is tuple and arguments[-1] is not ...:
            yield "["
            yield from _joined(arguments, ", ")
            yield "]"
        case origin if origin is tuple:
            yield "list of "
            yield from _type(arguments[0])
        case _:
            yield "object: "
            yield from _joined(get_args(arguments[0]) or arguments[:1], "/")  # the parts of a key are joined by slashes
            yield " → "
            yield from _type(arguments[1])


def _joined(hints: Iterable[Any], word: str) -> Iterator[str | type]:
    for number, hint in enumerate(hints):
        if number:
            yield word
        yield from _type(hint)
