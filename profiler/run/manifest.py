"""The manifest of a run (run.json): written whole or not at all, read back or refused in one line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from profiler.core.errors import ProfilerError
from profiler.run import tables

if TYPE_CHECKING:  # the types live in a module that imports NumPy, which writing does not need
    from profiler.run.model import RunInfo

RESERVE: Final = ".reserve"
"""A file that takes room from the start on, for the last manifest when the disk is full."""


def write_manifest(path: Path, info: RunInfo) -> None:
    """Replace run.json atomically. The end of a run gives the reserve back first, so that a full disk takes it."""
    if info.state != "running":
        (path / RESERVE).unlink(missing_ok=True)
    temporary = path / (tables.MANIFEST + ".new")
    temporary.write_text(json.dumps(dataclasses.asdict(info), indent=1) + "\n", encoding="utf-8")
    temporary.replace(path / tables.MANIFEST)


def read_manifest(path: Path) -> RunInfo:
    """The manifest of the run directory `path`.

    :raises ProfilerError: not a run, damaged, or written by a newer version.
    """
    file = path / tables.MANIFEST
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ProfilerError(f"{path} is not a run: there is no {tables.MANIFEST} in it") from error
    except OSError as error:
        raise ProfilerError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise ProfilerError(f"{file} is damaged: {error}") from error
    return info_from_json(content, str(path))


def check_schema(schema: object, where: str) -> None:
    """:raises ProfilerError: `schema` is not one that this version reads."""
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise ProfilerError(f"{where} is damaged: its schema is {schema!r}, not a number from 1")
    if schema > tables.SCHEMA:
        raise ProfilerError(
            f"run {where} was written by a newer version (schema {schema}; this one reads {tables.SCHEMA}): upgrade"
        )


def info_from_json(content: object, where: str) -> RunInfo:
    """The reverse of `dataclasses.asdict` and JSON. Fields that this version does not know are left out.

    :raises ProfilerError: a field is missing or of another type, or the schema is newer.
    """
    from profiler.run.model import CollectorStatus, RunInfo

    if not isinstance(content, Mapping):
        raise ProfilerError(f"{where} is damaged: {tables.MANIFEST} holds no object")
    check_schema(content.get("schema"), where)
    known = _known(content, RunInfo)
    try:
        known["argv"] = tuple(str(word) for word in known.get("argv", ()))
        known["devices"] = tuple(dict(row) for row in known.get("devices", ()))
        known["collectors"] = tuple(
            CollectorStatus(**_known(row, CollectorStatus)) for row in known.get("collectors", ())
        )
        for name in ("host", "versions", "facts"):
            known[name] = dict(known.get(name, {}))
        return RunInfo(**known)
    except (TypeError, ValueError) as error:
        raise ProfilerError(f"{where} is damaged: {tables.MANIFEST}: {error}") from error


def _known(content: Mapping[str, Any], kind: type[Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in content.items() if name in names}
