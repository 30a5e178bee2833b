"""`[tool.profiler.check]` of pyproject.toml, with what the command line says in its place: limits and settings."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from profiler.check import limit_values
from profiler.check.limit_values import BadValueError
from profiler.check.model import Limits
from profiler.core.errors import ProfilerError

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


def parse_share(text: str | float) -> float:
    """'5%' and 0.05 are 0.05.

    :raises ProfilerError: it is neither, or negative, or not below 1.
    """
    try:
        return limit_values.share(text)
    except BadValueError as error:
        raise ProfilerError(str(error)) from None


_KEYS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "detect": limit_values.detectable,
    "limits": limit_values.limits,
    "ignore": limit_values.texts,
    "inconclusive": limit_values.choice,
    "max_rounds": limit_values.whole(1),
    "max_seconds": limit_values.seconds,
    "baseline": limit_values.text,
    "steps": limit_values.whole(1),
    "warmup": limit_values.whole(0),
    "processes": limit_values.whole(1),
    "links": limit_values.texts,
}
_OF_LIMITS: Final = ("detect", "ignore", "inconclusive", "max_rounds", "max_seconds")


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
            raise ProfilerError(f"{whole} has no key {limit_values.named(key)}{suggestion(key, _KEYS)}")
        try:
            found[key] = _KEYS[key](value)
        except BadValueError as error:
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
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, numbers and brackets without end
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
