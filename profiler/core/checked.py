"""Opens files that others may have made or damaged, and checks the types of what their JSON holds.

Only regular files are opened, up to a size. A file that unpacks is read in pieces, so a bomb ends early.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import re
import stat
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from profiler.core.errors import ProfilerError
from profiler.core.units import size

MAX_SIZE: Final = 2_000_000_000
"""Bytes, unpacked, of the largest file that is read. A trace of 62 MB has 239,000 events: longer ones are rare."""
_MAX_DEPTH: Final = 32
"""Levels of a fact of unknown type. Deeper ones would end the functions that walk through facts."""
_INT64: Final = 1 << 63
_UNITS: Final = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_max_size = ContextVar("max_size", default=MAX_SIZE)


@contextmanager
def limited_to(most: int | None) -> Iterator[None]:
    """Read files of up to `most` bytes within the block; None: of as many as before."""
    token = _max_size.set(_max_size.get() if most is None else most)
    try:
        yield
    finally:
        _max_size.reset(token)


class MaxSize(argparse.Action):
    """Sets the most bytes of a file, by an option with a number and a unit, until the command ends."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any) -> None:
        match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?) ?(|B|kB|MB|GB|TB)", str(values), re.IGNORECASE)
        if match is None:
            parser.error(f"argument {self.option_strings[0]}: {values!r} is no size such as 500MB or 20GB")
        _max_size.set(int(float(match[1]) * _UNITS[match[2].upper()]))
        setattr(namespace, self.dest, values)


def check_size(path: Path, number: int, what: str = "has") -> None:
    """Refuse a file with more bytes than may be read.

    :param what: what the file does with them: `has`, or `unpacks to`.
    :raises ProfilerError: `path` is too large.
    """
    if number > (most := _max_size.get()):
        raise ProfilerError(
            f"{path} {what} more than {size(most)}: read larger files with --max-size 20GB, in `check` with --set "
            "max_size=20GB"
        )


def open_file(path: Path) -> IO[bytes]:
    """Open a regular file for reading.

    :raises FileNotFoundError: there is none.
    :raises ProfilerError: it cannot be opened, is no regular file, or is too large.
    """
    try:
        # a FIFO without a writer would block without O_NONBLOCK; it has no effect on regular files
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(*error.args) from error
    except OSError as error:
        raise ProfilerError(f"cannot read {path}: {error.strerror}") from error
    try:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ProfilerError(f"{path} is a pipe, a device or a socket, and only files are read: copy it into one")
        check_size(path, status.st_size)
    except ProfilerError:
        file.close()
        raise
    return file


def read_bytes(path: Path) -> bytes:
    """The content of a regular file.

    :raises FileNotFoundError: there is none.
    :raises ProfilerError: as `open_file`, or the reading fails.
    """
    with open_file(path) as file:
        try:
            return file.read()
        except (OSError, MemoryError) as error:
            raise ProfilerError(f"cannot read {path}: {getattr(error, 'strerror', '') or 'no memory'}") from error


def read_json(path: Path) -> Any:
    """The value of a JSON file.

    :raises FileNotFoundError: there is none.
    :raises ProfilerError: as `read_bytes`.
    :raises ValueError: it is no JSON, or nested too deeply.
    """
    return parse(read_bytes(path))


def parse(text: bytes) -> Any:
    """Parse JSON.

    :raises ValueError: it is no JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


# ---------------------------------------------------------------- types


@cache
def declared(kind: Any) -> Mapping[str, Any]:
    """Name -> type of the fields of a TypedDict or a dataclass."""
    return get_type_hints(kind, include_extras=True)


def fits(value: object, kind: Any) -> bool:
    """Tell whether a JSON value has the type `kind`.

    :param kind: a plain type, `list[X]`, `tuple[X, ...]`, `dict[str, X]`, a union, a Literal, a TypedDict, a dataclass,
        or Annotated with the least number, a range, or the pattern of a text.
    """
    if kind is Any:
        return not is_deep(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64
    if kind is float:
        return fits(value, int) or (isinstance(value, float) and math.isfinite(value))
    if origin := get_origin(kind):
        return _fits_generic(value, origin, get_args(kind))
    if is_typeddict(kind) or dataclasses.is_dataclass(kind):
        return isinstance(value, Mapping) and _has_fields(value, kind)
    return isinstance(value, kind)


def _fits_generic(value: Any, origin: Any, arguments: tuple[Any, ...]) -> bool:
    if origin is Annotated:
        kind, limit = arguments
        if not fits(value, kind):
            return False
        if isinstance(limit, range):
            return value in limit
        return bool(re.fullmatch(limit, value) if isinstance(limit, str) else value >= limit)
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in arguments)
    if origin is Literal:
        return value in arguments
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(fits(each, arguments[1]) for each in value.values())
    if not isinstance(value, list | tuple):
        return False
    if origin is tuple and arguments[-1] is not Ellipsis:
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    return all(fits(each, arguments[0]) for each in value)


def _has_fields(value: Mapping[str, Any], kind: Any) -> bool:
    fields = declared(kind)
    if is_typeddict(kind):
        required = kind.__required_keys__
    else:
        nothing = dataclasses.MISSING
        rows = dataclasses.fields(kind)
        required = {row.name for row in rows if row.default is nothing and row.default_factory is nothing}
    return required <= value.keys() and all(fits(value[name], fields[name]) for name in value.keys() & fields.keys())


def is_deep(value: object, levels: int = _MAX_DEPTH) -> bool:
    """Tell whether a JSON value is nested more deeply than `levels`."""
    if not isinstance(value, dict | list | tuple):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_deep(each, levels - 1) for each in inner)


def fitting(content: Mapping[str, Any], kind: Any) -> tuple[dict[str, Any], list[str]]:
    """Split `content` into the entries that fit the fields of `kind` and the names of the others.

    An entry that `kind` does not declare fits unless it is nested deeply.
    """
    fields = declared(kind)
    kept = {name: value for name, value in content.items() if fits(value, fields.get(name, Any))}
    return kept, [name for name in content if name not in kept]
