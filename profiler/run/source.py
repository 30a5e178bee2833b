"""Reads what a run directory holds: an archive unpacked, and the tables and texts that one process wrote."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import numpy as np

from profiler.core.errors import ProfilerError
from profiler.core.notice import Notice
from profiler.run import store, tables
from profiler.run.model import Site, StatedResult, Table

T = TypeVar("T")
Lines = Mapping[tuple[str, int], str]
"""(file, line) -> the text of the line, without indentation."""
_NUMPY: Final = {"q": "<i8", "i": "<i4", "d": "<f8"}
_HAVE_PID: Final = ("samples", "stacks", "gil_stacks")  # the recorder wrote these about other processes


def dtype_of(table: str, *, loaded: bool = True) -> np.dtype[np.void]:
    """The layout of `table` on disk, or as loaded: with `pid` and `rank` where the file's layout has no pid."""
    fields = [(name, _NUMPY[code]) for name, code in tables.TABLES[table]]
    if loaded and table not in _HAVE_PID:
        fields += [("pid", "<i8"), ("rank", "<i4")]
    return np.dtype(fields)


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """Extract the run directory in `archive` into a temporary folder.

    The run may lie at the top of the archive or in a folder. Entries cannot be written outside of the temporary folder:
    `zipfile` drops `..` and absolute paths. Errors of the run name the archive.

    :raises ProfilerError: not a .zip, a damaged one, or one without a run or with several.
    """
    with TemporaryDirectory(prefix="profiler-") as temporary:
        try:
            with zipfile.ZipFile(archive) as file:
                file.extractall(temporary)
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise ProfilerError(f"{archive} is damaged, or not a .zip that can be read: {error}") from error
        except OSError as error:
            raise ProfilerError(f"cannot unpack {archive}: {error.strerror or error}") from error
        runs = [file.parent for file in Path(temporary).rglob(tables.MANIFEST)]
        if len(runs) != 1:
            raise ProfilerError(f"{archive} holds {len(runs)} runs: give a .zip of one run directory")
        try:
            yield runs[0]
        except ProfilerError as error:
            raise ProfilerError(str(error).replace(str(runs[0]), str(archive)), error.exit_code) from error


@dataclass
class Source:
    """The records of one process; numbers in its tables refer to its own texts."""

    name: str
    pid: int = 0
    rank: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    sites: dict[int, Site] = field(default_factory=dict)
    stacks: dict[int, tuple[Site, ...]] = field(default_factory=dict)
    results: list[StatedResult] = field(default_factory=list)
    problems: list[Notice] = field(default_factory=list)


def read_source(folder: Path, lines: Lines | None = None) -> Source:
    """Read everything in `folder`; damaged parts are left out and reported in `problems`.

    :param lines: the text of lines, for the sites.
    """
    source = Source(folder.name)
    try:
        if folder.name != store.RECORDER:
            _read_meta(folder, source)
        if (folder / tables.STOPPED).exists():
            source.problems.append(Notice("process-stopped", {"source": folder.name}))
        for table in tables.TABLES:
            source.tables[table] = _read_table(folder / f"{table}.bin", table, source.problems)
        source.names = _read_texts(folder / tables.NAMES, lambda line: str(line["text"]), source.problems)
        texts = lines or {}
        source.sites = _read_texts(folder / tables.SITES, partial(_site, texts), source.problems)
        source.stacks = _read_texts(folder / tables.STACK_TEXTS, partial(_frames, texts, {}), source.problems)
        source.results = list(_read_lines(folder / tables.RESULTS, _result, source.problems))
    except OSError as error:
        raise ProfilerError(f"cannot read {error.filename or folder}: {error.strerror}") from error
    return source


def read_names(folder: Path) -> tuple[str, ...]:
    """The names in the tables of one folder; those that cannot be read are left out."""
    return tuple(_read_texts(folder / tables.NAMES, lambda line: str(line["text"]), []).values())


def read_facts(folder: Path) -> Mapping[str, Any]:
    """The facts that the process of one folder states; empty where they cannot be read.

    :raises ProfilerError: another version of this package recorded them.
    """
    source = Source(folder.name)
    if folder.name != store.RECORDER:
        _read_meta(folder, source)
    return source.facts


def read_lines(folder: Path) -> set[tuple[str, int]]:
    """File and number of each line that the sites and stacks of one folder name; those that cannot be read are left
    out."""
    sites = set(_read_lines(folder / tables.SITES, partial(_site, {}), []))
    for frames in _read_lines(folder / tables.STACK_TEXTS, partial(_frames, {}, {}), []):
        sites.update(frames)
    return {(site.file, site.line) for site in sites}


def _site(lines: Lines, line: Mapping[str, Any]) -> Site:
    file, number = str(line["file"]), int(line["line"])
    return Site(file, number, str(line["function"]), lines.get((file, number), ""))


def _frames(lines: Lines, sites: dict[tuple[Any, ...], Site], line: Mapping[str, Any]) -> tuple[Site, ...]:
    """The frames of a stack; `sites` are those of earlier stacks, which have most frames in common."""
    frames = []
    for frame in line["frames"]:
        if (site := sites.get(tuple(frame))) is None:
            file, number, function = frame
            site = Site(str(file), int(number), str(function), lines.get((str(file), int(number)), ""))
            sites[tuple(frame)] = site
        frames.append(site)
    return tuple(frames)


def _result(line: Mapping[str, Any]) -> StatedResult:
    return StatedResult(
        name=str(line["name"]),
        count=int(line["count"]),
        values=tuple(line["values"]),
        integer=bool(line["integer"]),
        checksum=int(line["checksum"]),
        rtol=float(line["rtol"]),
        atol=float(line["atol"]),
        margins=tuple(line["margins"]),
    )


def _read_meta(folder: Path, source: Source) -> None:
    source.pid = tables.pid_of(folder.name) or 0
    try:
        meta = json.loads((folder / tables.SOURCE_META).read_text(encoding="utf-8"))
        store.check_schema(meta["schema"], str(folder))
        source.pid, source.rank = int(meta["pid"]), int(meta["rank"])
        source.facts = dict(meta["facts"])
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        values = {"file": f"{folder.name}/{tables.SOURCE_META}", "error": type(error).__name__}
        source.problems.append(Notice("metadata-damaged", values))


def _read_table(path: Path, table: str, problems: list[Notice]) -> Table:
    """The complete records of `path`, mapped into memory; a missing file is an empty table."""
    dtype = dtype_of(table, loaded=False)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return np.empty(0, dtype)
    if torn := size % dtype.itemsize:
        problems.append(Notice("torn-record", {"file": f"{path.parent.name}/{path.name}", "bytes": torn}))
    count = size // dtype.itemsize
    return np.memmap(path, dtype, "r", shape=(count,)) if count else np.empty(0, dtype)


def _read_texts(path: Path, parse: Callable[[Mapping[str, Any]], T], problems: list[Notice]) -> dict[int, T]:
    """Number -> value of a .jsonl."""
    return dict(_read_lines(path, lambda line: (int(line["id"]), parse(line)), problems))


def _read_lines(path: Path, parse: Callable[[Mapping[str, Any]], T], problems: list[Notice]) -> Iterator[T]:
    """The values of a .jsonl; lines that cannot be read are left out and reported."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            yield parse(json.loads(line))
        except (ValueError, KeyError, TypeError):
            torn = number == len(lines)
            values = {"file": f"{path.parent.name}/{path.name}", "line": number}
            problems.append(Notice("torn-line" if torn else "damaged-line", values))
