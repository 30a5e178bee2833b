"""Reads what a run directory holds: an archive unpacked, and the tables and texts that one process wrote."""

from __future__ import annotations

import lzma
import os
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
import numpy.typing as npt

from profiler.core.errors import Notice, ProfilerError
from profiler.core.files import check_size, fits, open_file, read_json
from profiler.core.files import parse as parse_json
from profiler.run import store, tables
from profiler.run.declared import Facts, Positive, SourceMeta, with_known_types
from profiler.run.model import Site, StatedResult, Table

T = TypeVar("T")
Lines = Mapping[tuple[str, int], str]
"""(file, line) -> the text of the line, without indentation."""
_NUMPY: Final = {"q": "<i8", "i": "<i4", "d": "<f8"}
_MAX_INT32: Final = (1 << 31) - 1
_MAX_INT64: Final = (1 << 63) - 1
_LATEST: Final = 1 << 58
"""ns: a machine that has run for nine years."""
_LARGEST: Final = 1 << 50
"""A quadrillion bytes, tokens or operators at a time. The sum of 8,000 of them fits into 64 bits."""
_RANGES: Final = {
    **dict.fromkeys(("begin", "end", "time"), (-_LATEST, _LATEST)),
    "blocked": (0, _LATEST),
    **dict.fromkeys(("thread_cpu", "process_cpu", "device_cpu", "cpu", "delay"), (tables.NOT_READ, _LATEST)),
    **dict.fromkeys(("bytes", "count", "tokens"), (-_LARGEST, _LARGEST)),
    "depth": (0, _MAX_INT32),
    "active": (-1, 1),
    "step": (tables.STEP_OF_ANOTHER_PROCESS, _MAX_INT64),
}
"""Column -> its least and its largest value. Numbers of texts are checked where these are found."""
_MAX_LINE: Final = 1 << 24
"""Bytes of a line of a .jsonl; a stack of 1,000 frames has some 100 kB."""
_MAX_NAMED: Final = 3
"""Damaged lines of a file that are named one by one."""
_MAX_ENTRIES: Final = 100_000
"""Files in an archive: a process writes at most 20."""
_HAVE_PID: Final = ("samples", "stacks", "gil_stacks")  # the recorder wrote these about other processes


def dtype_of(table: str, *, loaded: bool = True) -> np.dtype[np.void]:
    """Return the layout of `table` on disk, or as loaded: with `pid` and `rank` where the file's layout has no pid."""
    fields = [(name, _NUMPY[code]) for name, code in tables.TABLES[table]]
    if loaded and table not in _HAVE_PID:
        fields += [("pid", "<i8"), ("rank", "<i4")]
    return np.dtype(fields)


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """Extract the run directory in `archive` into a temporary folder.

    The run may lie at the top of the archive or in a folder. Entries cannot be written outside of the temporary folder:
    `zipfile` drops `..` and absolute paths, and writes no more of an entry than the archive's directory tells. Errors
    of the run name the archive.

    :raises ProfilerError: not a .zip, a damaged or too large one, or one without a run or with several.
    """
    with TemporaryDirectory(prefix="profiler-") as temporary:
        try:
            with open_file(archive) as opened, zipfile.ZipFile(opened) as file:
                entries = file.infolist()
                check_size(archive, sum(entry.file_size for entry in entries), "unpacks to")
                if len(entries) > _MAX_ENTRIES:
                    raise ProfilerError(f"{archive} has more than {_MAX_ENTRIES:,} files: pack one run directory")
                file.extractall(temporary)
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError) as error:
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
    :raises ProfilerError: a newer version wrote it.
    """
    source = Source(folder.name)
    if folder.name != store.RECORDER:
        _read_meta(folder, source)
    if os.path.lexists(folder / tables.STOPPED):
        source.problems.append(Notice("process-stopped", {"source": folder.name}))
    for table in tables.TABLES:
        source.tables[table] = _read_table(folder / f"{table}.bin", table, source.problems)
    source.names = _read_texts(folder / tables.NAMES, _name, source.problems)
    texts = lines or {}
    source.sites = _read_texts(folder / tables.SITES, partial(_site, texts), source.problems)
    source.stacks = _read_texts(folder / tables.STACK_TEXTS, partial(_frames, texts, {}), source.problems)
    source.results = list(_read_lines(folder / tables.RESULTS, _result, source.problems))
    return source


def read_names(folder: Path) -> tuple[str, ...]:
    """Return the names in the tables of one folder; those that cannot be read are left out."""
    return tuple(_read_texts(folder / tables.NAMES, _name, []).values())


def read_facts(folder: Path) -> Mapping[str, Any]:
    """Return the facts that the process of one folder states; empty where they cannot be read.

    :raises ProfilerError: another version of this package recorded them.
    """
    source = Source(folder.name)
    if folder.name != store.RECORDER:
        _read_meta(folder, source)
    return source.facts


def read_lines(folder: Path) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    """Return the file and number of each line that the sites of one folder name, and of each one that its stacks do;
    those that cannot be read are left out."""
    sites = set(_read_lines(folder / tables.SITES, partial(_site, {}), []))
    frames = {site for each in _read_lines(folder / tables.STACK_TEXTS, partial(_frames, {}, {}), []) for site in each}
    return {(site.file, site.line) for site in sites}, {(site.file, site.line) for site in frames}


def _name(line: Mapping[str, Any]) -> str:
    text = str(line["text"])
    return tables.MIGHT_SYNC if text == tables.WOULD_SYNC else text


def _integer(value: Any, most: int = _MAX_INT32, *, least: int = -_MAX_INT32) -> int:
    """:raises ValueError: it is no integer from `least` to `most`."""
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{value!r} is out of range")
    return value


def _site(lines: Lines, line: Mapping[str, Any]) -> Site:
    file, number = str(line["file"]), _integer(line["line"], _MAX_INT64)
    return Site(file, number, str(line["function"]), lines.get((file, number), ""))


def _frames(lines: Lines, sites: dict[tuple[Any, ...], Site], line: Mapping[str, Any]) -> tuple[Site, ...]:
    """Return the frames of a stack; `sites` are those of earlier stacks, which have most frames in common."""
    frames = []
    for frame in line["frames"]:
        if (site := sites.get(tuple(frame))) is None:
            file, number, function = frame
            site = Site(str(file), _integer(number, _MAX_INT64), str(function), lines.get((str(file), number), ""))
            sites[tuple(frame)] = site
        frames.append(site)
    return tuple(frames)


def _result(line: Mapping[str, Any]) -> StatedResult:
    values, margins, count = line["values"], line["margins"], _integer(line["count"], _MAX_INT64)
    if len(values) != tables.stored_results(count, has_margins=bool(margins)) or len(margins) not in (0, len(values)):
        raise ValueError("another number of values than it tells")
    return StatedResult(
        name=str(line["name"]),
        count=count,
        values=tuple(map(float, values)),
        integer=bool(line["integer"]),
        checksum=_integer(line["checksum"], _MAX_INT64),
        rtol=float(line["rtol"]),
        atol=float(line["atol"]),
        margins=tuple(map(float, margins)),
    )


def unreadable(path: Path, error: Exception) -> Notice:
    """Tell that a file of a run cannot be read. The path of an unpacked archive would mean nothing to a reader."""
    return Notice("file-unreadable", {"text": str(error).replace(str(path), f"{path.parent.name}/{path.name}")})


def _read_meta(folder: Path, source: Source) -> None:
    """:raises ProfilerError: a newer version wrote it."""
    name = f"{folder.name}/{tables.SOURCE_META}"
    source.pid = min(tables.pid_of(folder.name) or 0, _MAX_INT64)
    try:
        meta = dict(read_json(folder / tables.SOURCE_META))
        schema = meta["schema"]
        if not fits(schema, Positive):
            raise ValueError("no number of a schema")
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        values = {"file": name, "error": type(error).__name__}
        source.problems.append(Notice("metadata-damaged", values))
        return
    except ProfilerError as error:
        source.problems.append(unreadable(folder / tables.SOURCE_META, error))
        return
    store.check_schema(schema, str(folder))
    known = with_known_types(meta, SourceMeta, file=name, problems=source.problems)
    source.pid = known.get("pid", source.pid)
    source.rank = known.get("rank", 0)
    source.facts = with_known_types(known.get("facts", {}), Facts, file=name, problems=source.problems)


def _read_table(path: Path, table: str, problems: list[Notice]) -> Table:
    """Return the complete records of `path`, mapped into memory; a missing file is an empty table."""
    dtype, name = dtype_of(table, loaded=False), f"{path.parent.name}/{path.name}"
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if torn := size % dtype.itemsize:
                problems.append(Notice("torn-record", {"file": name, "bytes": torn}))
            count = size // dtype.itemsize
            rows: Table = np.memmap(file, dtype, "r", shape=(count,)) if count else np.empty(0, dtype)
    except FileNotFoundError:
        return np.empty(0, dtype)
    except (ProfilerError, OSError) as error:
        problems.append(unreadable(path, error))
        return np.empty(0, dtype)
    wrong = _impossible(rows, table)
    if wrong is None:
        return rows
    problems.append(Notice("impossible-records", {"file": name, "records": int(np.count_nonzero(wrong))}))
    return rows[~wrong]


def _impossible(rows: Table, table: str) -> npt.NDArray[np.bool_] | None:
    """Return the records with values that nothing writes; None where there are none, which costs less."""
    wrong: npt.NDArray[np.bool_] | None = None
    ranges = {**_RANGES, "kind": (0, max(tables.KINDS.get(table, (_MAX_INT32,))))}
    for column in ranges.keys() & set(rows.dtype.names or ()) if len(rows) else ():
        values, (low, high) = rows[column], ranges[column]
        if low == 0:  # a negative number is a large one without its sign: one search instead of two
            is_right = int(values.view(f"<u{values.dtype.itemsize}").max()) <= high
        else:
            is_least, is_most = column != "end", column != "begin"  # an end lies behind its begin
            is_right = (not is_least or int(values.min()) >= low) and (not is_most or int(values.max()) <= high)
        if not is_right:
            wrong = (values < low) | (values > high) | (False if wrong is None else wrong)
        if column == "end" and (is_early := values < rows["begin"]).any():
            wrong = is_early | (False if wrong is None else wrong)
    return wrong


def _read_texts(path: Path, parse: Callable[[Mapping[str, Any]], T], problems: list[Notice]) -> dict[int, T]:
    """Map the numbers of a .jsonl to its values."""
    return dict(_read_lines(path, lambda line: (_integer(line["id"], least=0), parse(line)), problems))


def _read_lines(path: Path, parse: Callable[[Mapping[str, Any]], T], problems: list[Notice]) -> Iterator[T]:
    """Yield the values of a .jsonl; lines that cannot be read are left out and reported."""
    damaged: list[int] = []
    name, line, number = f"{path.parent.name}/{path.name}", b"", 0
    try:
        with open_file(path) as file:
            for number, line in enumerate(iter(partial(file.readline, _MAX_LINE), b""), 1):
                try:
                    if line != b"\n":
                        yield parse(parse_json(line))
                except (ValueError, KeyError, TypeError, OverflowError):
                    damaged.append(number)
    except FileNotFoundError:
        return
    except (ProfilerError, OSError) as error:
        problems.append(unreadable(path, error))
    if damaged and damaged[-1] == number and not line.endswith(b"\n"):
        damaged.pop()
        problems.append(Notice("torn-line", {"file": name, "line": number}))
    problems += (Notice("damaged-line", {"file": name, "line": line}) for line in damaged[:_MAX_NAMED])
    if len(damaged) > _MAX_NAMED:
        problems.append(Notice("damaged-lines", {"file": name, "lines": len(damaged) - _MAX_NAMED}))
