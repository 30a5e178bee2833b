"""Reads a baseline with distrust: what this tool did not write so is refused in one line, never passed over."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from profiler.check.sections import CHECKSUM, SCHEMA, Plain, Row, checksum
from profiler.core.errors import ProfilerError

_CONFLICT: Final = re.compile(r"^(?:<{7}|={7}|>{7}|\|{7})(?: |$)", re.MULTILINE)
_HELP: Final = "restore it from version control, or replace all of it with --update --reason TEXT"


class DamagedError(ProfilerError):
    """A file that is no baseline as this tool writes them; an update may replace it.

    :param fault: what is wrong with it, as the rest of a sentence about it.
    """

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(f"the baseline {path} {fault}: {_HELP}")
        self.fault = fault


def read(path: Path) -> list[Plain]:
    """The sections of a file; at least one.

    :raises DamagedError: it is damaged, or was changed by something else than this tool.
    :raises ProfilerError: it cannot be read, or a newer version wrote it.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ProfilerError(f"there is no baseline at {path}: write one with --update") from None
    except OSError as error:
        raise ProfilerError(f"cannot read the baseline {path}: {error.strerror}") from error
    try:
        return _sections(_parsed(content))
    except _FaultError as fault:
        raise DamagedError(path, str(fault)) from None
    except _NewerError as newer:
        raise ProfilerError(f"the baseline {path} {newer}") from None


class _FaultError(Exception):
    """What is wrong with a file, as the rest of a sentence about it."""


class _NewerError(Exception):
    """The same of a file that is not wrong."""


def _parsed(content: bytes) -> Any:
    if not content.strip(b" \t\r\n\0"):
        raise _FaultError("is empty")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _FaultError("is no text in UTF-8") from None
    if found := _CONFLICT.search(text.replace("\r\n", "\n")):
        line = text.replace("\r\n", "\n").count("\n", 0, found.start()) + 1
        raise _FaultError(f"has the marks of a merge conflict in line {line}")
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise _FaultError(f"is no JSON (line {error.lineno}, column {error.colno}: {error.msg})") from None
    except (ValueError, RecursionError) as error:  # thousands of digits, or of brackets
        raise _FaultError(f"is no JSON that this tool wrote ({type(error).__name__})") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _FaultError(f"has {_shown(twice)} twice in one place")
    return dict(pairs)


def _no_number(text: str) -> NoReturn:
    raise _FaultError(f"has {text} where a number should be")


def _sections(value: Any) -> list[Plain]:
    if not isinstance(value, dict) or "schema" not in value:
        raise _FaultError("says no schema")
    schema = value["schema"]
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise _FaultError(f"has no schema that there ever was ({_shown(schema)})")
    if schema > SCHEMA:
        raise _NewerError(
            f"was written by a newer version of the profiler (schema {schema}, this one knows {SCHEMA}): update it"
        )
    _has_just(value, ("what", "schema", "sections"), "the file")
    found = value["sections"]
    if not isinstance(found, list) or not found:
        raise _FaultError("has no sections")
    plain = [_section(one, number) for number, one in enumerate(found, 1)]
    for number, one in enumerate(plain):
        if any(one["key"] == other["key"] for other in plain[:number]):
            raise _FaultError(f"has two sections of one key (section {number + 1} is the second), as after a merge")
    return plain


def _section(value: Any, number: int) -> Plain:
    where = f"section {number}"
    if not isinstance(value, dict):
        raise _FaultError(f"has no section where {where} should be")
    _has_just(value, (*Plain.__annotations__, CHECKSUM), where)
    texts = {
        name: _text(value[name], f"{name} of {where}") for name in ("command", "step", "updated_at", "reason", "tool")
    }
    plain: Plain = Plain(
        key={name: _text(text, f"key of {where}") for name, text in _table(value["key"], f"key of {where}").items()},
        steps=_whole(value["steps"], f"steps of {where}"),
        processes=_whole(value["processes"], f"processes of {where}"),
        counters=_ranges(value["counters"], f"counters of {where}"),
        workers=_ranges(value["workers"], f"workers of {where}"),
        sites=_rows(value["sites"], f"sites of {where}"),
        worker_sites=_rows(value["worker_sites"], f"worker_sites of {where}"),
        **texts,  # type: ignore[typeddict-item]
    )
    if value[CHECKSUM] != checksum(plain):
        raise _FaultError(f"was changed by hand, or damaged (the checksum of {where} does not fit it)")
    return plain


def _has_just(value: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    if missing := [name for name in names if name not in value]:
        raise _FaultError(f"lacks {missing[0]} in {where}")
    if more := [name for name in value if name not in names]:
        raise _FaultError(f"has {_shown(more[0])} in {where}, which this tool does not write")


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _FaultError(f"has no table as {where}")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _FaultError(f"has no text as {where}")
    return value


def _whole(value: Any, where: str, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _FaultError(f"has no whole number from {least} on as {where}")
    return value


def _amount(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value > 1e300:
        raise _FaultError(f"has {_shown(value)} among the {where}, which no counter can be")
    return float(value)


def _ranges(value: Any, where: str) -> dict[str, tuple[float, float]]:
    found = {}
    for name, ends in _table(value, where).items():
        pair = ends if isinstance(ends, list) else [ends, ends]
        if len(pair) != 2:
            raise _FaultError(f"has {_shown(ends)} among the {where}, which is no range")
        least, most = (_amount(one, where) for one in pair)
        if least > most:
            raise _FaultError(f"has {_shown(ends)} among the {where}, which is no range")
        found[name] = least, most
    return found


def _rows(value: Any, where: str) -> list[Row]:
    if not isinstance(value, list):
        raise _FaultError(f"has no list as {where}")
    found: list[Row] = []
    for row in value:
        if not isinstance(row, list) or len(row) != 7:
            raise _FaultError(f"has {_shown(row)} among the {where}, which is no site")
        counter, file, line, function, operation, amount, text = row
        words = [_text(one, where) for one in (counter, file, function, operation, text)]
        found.append((words[0], words[1], _whole(line, where, 0), words[2], words[3], _amount(amount, where), words[4]))
    return found


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
