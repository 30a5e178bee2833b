"""`[tool.profiler.check]` of pyproject.toml, with what the command line says in its place: limits and settings."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from profiler.base.errors import ProfilerError
from profiler.gate.model import Limit, Limits

FILE: Final = "pyproject.toml"
TABLE: Final = "tool.profiler.check"


@dataclass(frozen=True, slots=True)
class Settings:
    """All of `[tool.profiler.check]`. None: the tool chooses."""

    limits: Limits = field(default_factory=Limits)
    baseline: Path | None = None
    """The file of counters; in pyproject.toml it is told from there."""
    steps: int | None = None
    """Measured in each process whose counters are held against the baseline."""
    warmup: int | None = None
    """Steps before them."""
    processes: int | None = None
    """Of each side."""
    links: tuple[str, ...] = ()
    """Files and folders that git does not keep and another revision needs too."""
    file: Path | None = None
    """Where this was read; None: there is no such table."""


class _BadValueError(ValueError):
    """A value that its key does not take; the text says what it takes."""


# ---------------------------------------------------------------- values


def parse_share(text: str | float) -> float:
    """'5%' and 0.05 are 0.05.

    :raises ProfilerError: it is neither, or negative, or not below 1.
    """
    try:
        return _share(text)
    except _BadValueError as error:
        raise ProfilerError(str(error)) from None


def _share(value: object) -> float:
    found = _amount(value)
    share = found.relative or found.absolute
    if not share < 1:
        raise _BadValueError(f"{_quoted(value)} is no share below 1: write 5% or 0.05")
    return share


def _detect(value: object) -> float:
    share = _share(value)
    if not share:
        raise _BadValueError(f"{_quoted(value)} cannot be detected by any number of rounds: write 5% or 0.05")
    return share


def _amount(value: object) -> Limit:
    """1, 0.5, '1%', or a table with absolute and relative."""
    if isinstance(value, Mapping):
        if unknown := [str(key) for key in value if key not in {"absolute", "relative"}]:
            raise _BadValueError(f"{_quoted(unknown[0])} is no part of a limit: absolute and relative are")
        return Limit(_number(value.get("absolute", 0.0)), _share(value.get("relative", 0.0)))
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            return Limit(relative=_number(value.strip()[:-1]) / 100)
        except _BadValueError:
            raise _BadValueError(f"{_quoted(value)} is no share such as 5%") from None
    return Limit(absolute=_number(value))


def _number(value: object) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise _BadValueError(f"{_quoted(value)} is neither a number nor a share such as 5%") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise _BadValueError(f"{_quoted(value)} is no number from 0 on")
    return float(value)


def _whole(least: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise _BadValueError(f"{_quoted(value)} is no whole number from {least} on")
        return value

    return parse


def _seconds(value: object) -> float:
    found = _number(value)
    if not found:
        raise _BadValueError("0 seconds are too few")
    return found


def _choice(value: object) -> str:
    if value not in {"fail", "pass"}:
        raise _BadValueError(f"{_quoted(value)} is neither fail nor pass")
    return str(value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _BadValueError(f"{_quoted(value)} is no text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise _BadValueError(f"{_quoted(value)} is no list of texts")
    return tuple(_text(one) for one in value)


def _limits(value: object) -> dict[str, Limit]:
    if not isinstance(value, Mapping):
        raise _BadValueError(f"{_quoted(value)} is no table of limits, such as syncs = 1")
    found = {}
    for name, limit in value.items():
        try:
            found[str(name)] = _amount(limit)
        except _BadValueError as error:
            raise _BadValueError(f"{_named(name)}: {error}") from None
    return found


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _named(key: str) -> str:
    """On one line, whatever it is."""
    return key if key.isprintable() else repr(key)


_KEYS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "detect": _detect,
    "limits": _limits,
    "ignore": _texts,
    "inconclusive": _choice,
    "max_rounds": _whole(1),
    "max_seconds": _seconds,
    "baseline": _text,
    "steps": _whole(1),
    "warmup": _whole(0),
    "processes": _whole(1),
    "links": _texts,
}
_OF_LIMITS: Final = ("detect", "ignore", "inconclusive", "max_rounds", "max_seconds")


# ---------------------------------------------------------------- the table


def read(path: Path | None, overrides: Mapping[str, object], *, cwd: Path | None = None) -> Settings:
    """What holds here.

    :param path: a pyproject.toml; None: the nearest one with such a table, from `cwd` upward.
    :param overrides: key -> what the command line says; None where it says nothing. Its limits are added to those of
        the file, counter by counter, and its paths are told from the working directory.
    :raises ProfilerError: a file that cannot be read, a key that there is not, a value that its key does not take.
    """
    file, table = (path, _table(path, needed=True)) if path else _nearest(cwd or Path.cwd())
    values = _parsed(table, lambda key: f"{file}: [{TABLE}] {key}", f"{file}: [{TABLE}]")
    given = {key: value for key, value in overrides.items() if value is not None}
    said = _parsed(given, lambda key: f"--{key.replace('_', '-')}", "the command line")
    if file and "baseline" in values:
        values["baseline"] = file.parent / values["baseline"]
    limits = {**values.pop("limits", {}), **said.pop("limits", {})}
    values |= said
    if "baseline" in values:
        values["baseline"] = Path(values["baseline"])
    own = {key: values.pop(key) for key in _OF_LIMITS if key in values}
    return Settings(Limits(counters=limits, **own), file=file, **values)


def _parsed(table: Mapping[str, object], where: Callable[[str], str], whole: str) -> dict[str, Any]:
    found = {}
    for key, value in table.items():
        if key not in _KEYS:
            raise ProfilerError(f"{whole} has no key {_named(key)}{suggestion(key, _KEYS)}")
        try:
            found[key] = _KEYS[key](value)
        except _BadValueError as error:
            raise ProfilerError(f"{where(key)}: {error}") from None
    return found


def suggestion(word: str, known: Iterable[str]) -> str:
    """`: did you mean syncs?`, or all there are where none is like it."""
    names = list(known)
    near = difflib.get_close_matches(word, names, 1)
    return f": did you mean {near[0]}?" if near else f": there are {', '.join(names)}"


def _nearest(folder: Path) -> tuple[Path | None, Mapping[str, object]]:
    for place in (folder, *folder.absolute().parents):
        file = place / FILE
        if file.is_file() and (table := _table(file)):
            return file, table
    return None, {}


def _table(file: Path, *, needed: bool = False) -> Mapping[str, object]:
    """The table of a file; empty where it has none.

    :param needed: somebody named the file.
    """
    try:
        value: Any = tomllib.loads(file.read_bytes().decode("utf-8"))
    except OSError as error:
        raise ProfilerError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfilerError(f"{file} is no TOML: {' '.join(str(error).split())}") from None
    at = ""
    for part in TABLE.split("."):
        at = f"{at}.{part}" if at else part
        if part not in value:
            if needed:
                raise ProfilerError(f"{file} has no table [{TABLE}]")
            return {}
        value = value[part]
        if not isinstance(value, dict):
            raise ProfilerError(f"{file}: {at} is no table")
    table: dict[str, object] = value
    return table
