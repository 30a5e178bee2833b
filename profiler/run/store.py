"""Writes the files of a run as the recorder does: the directory, its own tables, and the manifest."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from profiler.core.errors import ProfilerError
from profiler.core.facts import program_name
from profiler.core.files import declared, fits, read_json
from profiler.run import tables

if TYPE_CHECKING:  # model imports NumPy, which writing does not need
    from profiler.core.errors import Notice
    from profiler.run.model import RunInfo

RECORDER: Final = "recorder"
"""Folder of the recorder's own tables; recorded processes write to source-PID."""
OUTPUT_LOG: Final = "output.log"
RESERVE: Final = ".reserve"
"""A file that reserves space for the last manifest, for the case that the disk gets full."""
IGNORE: Final = ".gitignore"
"""A file that keeps git from adding the folder that it is in to a commit."""
_PRIVATE: Final = 0o700
_RESERVE_BYTES: Final = 1 << 16  # room for the last manifest when the disk is full; one takes about 4 KiB
_FLUSH_S: Final = 0.5  # kill -9 of the recorder loses at most so much
_FLUSH_BYTES: Final = 1 << 16
_MAX_TEXTS: Final = 20_000
"""Names and stacks that are remembered. One that occurs again later gets another number, which is equivalent."""
_DEFAULTS: Final[Mapping[str, Any]] = {"run_id": "", "started_at": "1970-01-01T00:00:00+00:00", "argv": ()}
"""Values of fields that every manifest has, where those are missing or of another type."""
_OLD_HOOKS_LOADED: Final = re.compile(r"(\d+) of (\d+) Python processes imported torch")
_TABLES: Final = ("samples", "stacks", "gil_stacks")

Frame = tuple[str, int, str]
"""File, line, function."""


# ---------------------------------------------------------------- the directory


def default_directory(argv: Sequence[str], parent: Path) -> Path:
    """Return a directory below `parent` that does not exist yet, named after the time (UTC) and the program."""
    stem = "".join(c if c.isalnum() or c in "._-" else "-" for c in program_name(argv))[:60]
    base = parent / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{stem}"
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def check_directory(path: Path) -> None:
    """Raise an error with a free path where no run can be made at `path`, since existing files are never overwritten.

    A directory that cannot be read raises none: making the run then fails with the system's reason.

    :raises ProfilerError: there is a file, a run or something else.
    """
    try:
        names = [entry.name for entry in path.iterdir() if entry.name != IGNORE]
    except NotADirectoryError:
        if not path.exists():  # it is the one above it
            return
        why = "it is a file"
    except OSError:
        return
    else:
        if not names:
            return
        why = "there is a run in it" if tables.MANIFEST in names else f"it is not empty ({_shown(min(names))} is in it)"
    free = _free_beside(path)
    raise ProfilerError(
        f"cannot use {_shown(str(path))}: {why}, and a run is never overwritten. Nothing was recorded or changed"
        f"{f'; {_shown(free)} is free' if free else ''}"
    )


def _shown(name: str) -> str:
    """Escaped where it would break the line or command the terminal."""
    return name if name.isprintable() else repr(name)


def _free_beside(path: Path) -> str:
    """Return a free name like that of `path`, relative to the working directory if `path` is; empty for the root."""
    target = Path(os.path.normpath(path.absolute()))
    if not target.name:
        return ""
    free = next(free for n in count(2) if not (free := target.with_name(f"{target.name}-{n}")).exists())
    return str(free) if path.is_absolute() else os.path.relpath(free)


def make_folder(path: Path, *, shared: bool = False) -> None:
    """Make the folder of one or several runs, which git ignores; one that exists keeps its mode.

    :param shared: let the umask decide who may read it, instead of only its owner.
    :raises OSError: it cannot be made.
    """
    path.mkdir(0o777 if shared else _PRIVATE, parents=True, exist_ok=True)
    if not any(path.iterdir()):
        _have_git_ignore(path)


def _have_git_ignore(folder: Path) -> None:
    (folder / IGNORE).write_text("*\n", encoding="ascii")


@contextmanager
def folder_of_runs(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Make the folder of several runs and of their report. At the end, remove it if nothing was written into it.

    :param shared: as in `make_folder`.
    :raises ProfilerError: it cannot be made.
    """
    path = path.absolute()
    try:
        new_folders = [folder for folder in (path, *path.parents) if not folder.exists()]
        was_empty = path in new_folders or not any(path.iterdir())
        make_folder(path, shared=shared)
    except OSError as error:
        raise ProfilerError(f"cannot make the folder {path}: {error.strerror}") from error
    try:
        yield
    finally:
        with suppress(OSError):  # a folder contains something
            if was_empty and [entry.name for entry in path.iterdir()] == [IGNORE]:
                (path / IGNORE).unlink()
            for folder in new_folders:
                folder.rmdir()


def create(path: Path, *, shared: bool = False) -> None:
    """Make the run directory with its reserve. An existing run is never overwritten.

    :param shared: as in `make_folder`.
    :raises ProfilerError: the path exists, or cannot be written.
    """
    check_directory(path)
    existed = path.exists()
    try:
        make_folder(path, shared=shared)
        (path / RESERVE).write_bytes(bytes(_RESERVE_BYTES))
        (path / RECORDER).mkdir()
    except OSError as error:
        if not existed:
            shutil.rmtree(path, ignore_errors=True)
        raise ProfilerError(f"cannot make the run directory {path}: {error.strerror}") from error


def point_latest(link: Path, directory: Path) -> str:
    """Make `link` point to `directory`, atomically; git ignores its folder. A file that is no link is left alone.

    :returns: why the link could not be made, in one line; empty if it was.
    """
    if link.exists() and not link.is_symlink():
        return f"{link} is not a link and stays as it is; the newest is {directory}"
    is_sibling = link.parent.resolve() == directory.parent.resolve()
    target = directory.name if is_sibling else str(directory.resolve())  # a relative link survives a move of the folder
    temporary = link.parent / f".{link.name}-{os.getpid()}"
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        if not (link.parent / IGNORE).exists():
            _have_git_ignore(link.parent)
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target, target_is_directory=True)
        temporary.replace(link)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        return f"{link} cannot be made: {error.strerror}; the newest is {directory}"
    return ""


# ---------------------------------------------------------------- the manifest


def write_manifest(path: Path, info: RunInfo) -> None:
    """Replace run.json atomically. At the end of a run the reserve is freed first, in case the disk is full."""
    if info.state != "running":
        (path / RESERVE).unlink(missing_ok=True)
    temporary = path / (tables.MANIFEST + ".new")
    temporary.write_text(json.dumps(dataclasses.asdict(info), indent=1) + "\n", encoding="utf-8")
    temporary.replace(path / tables.MANIFEST)


def read_manifest(path: Path, problems: list[Notice] | None = None) -> RunInfo:
    """Read the manifest of the run directory `path`.

    :param problems: gets what is wrong with single fields.
    :raises ProfilerError: not a run, damaged, or written by a newer version.
    """
    file = path / tables.MANIFEST
    try:
        content = read_json(file)
    except FileNotFoundError as error:
        raise ProfilerError(f"{path} is not a run: there is no {tables.MANIFEST} in it") from error
    except ValueError as error:
        raise ProfilerError(f"{file} is damaged: {error}. Without it the run cannot be read: record again") from error
    return info_from_json(content, str(path), problems)


def check_schema(schema: object, where: str) -> None:
    """:raises ProfilerError: `schema` is not one that this version reads."""
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise ProfilerError(f"{where} is damaged: its schema is {schema!r}, not a number from 1")
    if schema > tables.SCHEMA:
        raise ProfilerError(
            f"run {where} was written by a newer version (schema {schema}; this one reads {tables.SCHEMA}): upgrade"
        )


def info_from_json(content: object, where: str, problems: list[Notice] | None = None) -> RunInfo:
    """Convert a parsed manifest. Fields that this version does not know are left out.

    :param problems: gets the names of values that are left out, since they are of another type.
    :raises ProfilerError: all fields are missing that every manifest has, or the schema is newer.
    """
    from profiler.run.declared import Device, Facts, Host, with_known_types
    from profiler.run.model import CollectorStatus, RunInfo

    if not isinstance(content, Mapping):
        raise ProfilerError(f"{where} is damaged: {tables.MANIFEST} holds no object")
    check_schema(content.get("schema"), where)
    known = partial(with_known_types, file=tables.MANIFEST, problems=[] if problems is None else problems)
    fields = {name: value for name, value in content.items() if name in declared(RunInfo)}
    kinds = {"host": Host, "facts": Facts, "devices": Device, "collectors": CollectorStatus}
    for name, kind in kinds.items():
        if isinstance(value := fields.get(name), Mapping):
            fields[name] = known(value, kind)
        elif isinstance(value, list | tuple):
            fields[name] = [known(row, kind) if isinstance(row, Mapping) else row for row in value]
    if not fields.keys() & _DEFAULTS.keys():
        raise ProfilerError(f"{where} is damaged: {tables.MANIFEST}: {', '.join(_DEFAULTS)} are missing")
    try:
        datetime.fromisoformat(fields["started_at"])
    except (KeyError, TypeError, ValueError):
        fields["started_at"] = None
    # None is of no field's type, so that a missing field is named as one of another type is.
    fields = {**_DEFAULTS, **known({**dict.fromkeys(_DEFAULTS), **fields}, RunInfo)}
    statuses = (_current_status(row) for row in fields.get("collectors", ()))
    fields["collectors"] = tuple(CollectorStatus(**status) for status in statuses)
    fields["argv"], fields["devices"] = tuple(fields["argv"]), tuple(fields.get("devices", ()))
    return RunInfo(**fields)


def _current_status(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a status. Old manifests name the hooks `inside` and have their numbers in the reason
    only."""
    from profiler.run.declared import HooksLoaded
    from profiler.run.model import HOOKS, CollectorStatus

    fields = {name: value for name, value in row.items() if name in declared(CollectorStatus)}
    if fields["name"] == "inside":
        fields["name"] = HOOKS
        if numbers := _OLD_HOOKS_LOADED.match(fields.get("reason", "")):
            fields |= {"code": "hooks-loaded", "values": {"torch": int(numbers[1]), "python": int(numbers[2])}}
        elif fields["state"] == "unavailable":
            fields |= {"code": "hooks-not-loaded", "values": {}}
    if fields.get("code") == "hooks-loaded" and not fits(fields.get("values"), HooksLoaded):
        fields |= {"code": "", "values": {}}
    return fields


# ---------------------------------------------------------------- the recorder's tables


class RunWriter:
    """Appends the recorder's samples and stacks; any thread may call it.

    Buffers are flushed at least every `_FLUSH_S` as long as records arrive. If the disk is full this is reported once,
    records are dropped and counted, and the target goes on.
    """

    def __init__(self, run: Path) -> None:
        self.directory = run / RECORDER
        self.problem = ""
        self.dropped = 0
        self._files: dict[str, IO[bytes]] = {}
        # texts come before the records that refer to them: buffers are written in this order
        files = (tables.NAMES, tables.STACK_TEXTS, *(f"{table}.bin" for table in _TABLES))
        self._buffers = {name: bytearray() for name in files}
        self._names: dict[str, int] = {}
        self._stacks: dict[tuple[Frame, ...], int] = {}
        self._frames: dict[Frame, Frame] = {}
        self._numbers = {tables.NAMES: count(), tables.STACK_TEXTS: count()}
        self._pack_sample = tables.packer("samples").pack
        self._pack_stack = tables.packer("stacks").pack
        self._lock = threading.Lock()
        self._flushed = time.monotonic()

    def samples(self, when: int, rows: Sequence[tuple[int, int, str, float]]) -> None:
        """Add rows of (pid, tid, name, value), sampled at `when` (ns)."""
        with self._lock:
            for pid, tid, name, value in rows:
                number = self._names.get(name)
                if number is None:
                    if len(self._names) >= _MAX_TEXTS:
                        self._names.clear()
                    number = self._names[name] = next(self._numbers[tables.NAMES])
                    self._text(tables.NAMES, {"id": number, "text": name})
                self._record("samples.bin", self._pack_sample(when, pid, tid, value, number, 0))
            full = sum(map(len, self._buffers.values())) > _FLUSH_BYTES
            if full or time.monotonic() - self._flushed > _FLUSH_S:
                self._flush()

    def stacks(self, rows: Sequence[tuple[int, int, int, int, tuple[Frame, ...], int]], table: str = "stacks") -> None:
        """Add rows of (begin, end, pid, tid, frames outermost first, active) to `table`: stacks or gil_stacks."""
        with self._lock:
            for begin, end, pid, tid, frames, active in rows:
                number = self._stacks.get(frames)
                if number is None:
                    if len(self._stacks) >= _MAX_TEXTS:
                        self._stacks.clear()
                        self._frames.clear()
                    shared = tuple(self._frames.setdefault(frame, frame) for frame in frames)
                    number = self._stacks[shared] = next(self._numbers[tables.STACK_TEXTS])
                    self._text(tables.STACK_TEXTS, {"id": number, "frames": frames})
                self._record(f"{table}.bin", self._pack_stack(begin, end, pid, tid, number, active))
            self._flush()

    def flush(self) -> None:
        with self._lock:
            self._flush()

    def close(self) -> None:
        """Flush the buffers and close the files."""
        with self._lock:
            self._flush()
            for file in self._files.values():
                file.close()
            self._files.clear()

    def _text(self, file: str, line: dict[str, Any]) -> None:
        if not self.problem:
            self._buffers[file] += json.dumps(line).encode() + b"\n"

    def _record(self, file: str, record: bytes) -> None:
        if self.problem:
            self.dropped += 1
        else:
            self._buffers[file] += record

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        for name, buffer in self._buffers.items():
            if not buffer or self.problem:
                continue
            try:
                if name not in self._files:
                    self._files[name] = _open(self.directory / name)
                while buffer:  # on a nearly full disk a write takes only a part, and the next one fails
                    del buffer[: self._files[name].write(buffer)]
            except OSError as error:
                self.problem = error.strerror or str(error)
                for table in _TABLES:  # the buffer holds what was not written
                    self.dropped += math.ceil(len(self._buffers[f"{table}.bin"]) / tables.packer(table).size)
                if tables.first_to_stop(self.directory) and sys.stderr is not None:
                    with suppress(OSError):  # its terminal is gone
                        print(f"profiler: recording stopped: {self.problem}; the target goes on", file=sys.stderr)
            buffer.clear()


def _open(path: Path) -> IO[bytes]:
    return open(path, "ab", buffering=0)
