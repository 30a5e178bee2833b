"""The files of a run as the recorder writes them: the directory, its own tables, and the manifest."""

from __future__ import annotations

import json
import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import IO, Any, Final

from profiler.core.directories import refusal
from profiler.core.errors import ProfilerError
from profiler.run import tables
from profiler.run.manifest import RESERVE, check_schema, info_from_json, read_manifest, write_manifest

__all__ = [
    "OUTPUT_LOG",
    "RECORDER",
    "Frame",
    "RunWriter",
    "check_schema",
    "create",
    "default_directory",
    "info_from_json",
    "program_name",
    "read_manifest",
    "write_manifest",
]
RECORDER: Final = "recorder"
"""Folder of the recorder's own tables; recorded processes write to source-PID."""
OUTPUT_LOG: Final = "output.log"
_RESERVE_BYTES: Final = 1 << 16  # room for the last manifest when the disk is full; one takes about 4 KiB
_FLUSH_S: Final = 0.5  # what a kill -9 of the recorder can lose
_FLUSH_BYTES: Final = 1 << 16
_MOST_TEXTS: Final = 20_000
"""Names, and stacks, that are remembered: of hours of sampling there are more. One that is met again afterwards is
written again under another number, which means the same when it is loaded."""
_TABLES: Final = ("samples", "stacks", "gil_stacks")

Frame = tuple[str, int, str]
"""File, line, function."""


# ---------------------------------------------------------------- the directory


def program_name(argv: Sequence[str]) -> str:
    """What a person would call this command: the module after -m, the script, or the program."""
    name = Path(argv[0]).name
    if not name.startswith("python"):
        return Path(name).stem
    options = list(argv[1:])
    for position, word in enumerate(options):
        if word == "-m" and position + 1 < len(options):
            return options[position + 1]
        if word == "-c":
            return name
        if not word.startswith("-"):
            return Path(word).stem
    return name


def default_directory(argv: Sequence[str], parent: Path) -> Path:
    """A directory below `parent` that does not exist yet: time of day (UTC) and program."""
    stem = "".join(c if c.isalnum() or c in "._-" else "-" for c in program_name(argv))[:60]
    base = parent / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{stem}"
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def create(path: Path) -> None:
    """Make the run directory with its reserve. A run is never written over.

    :raises ProfilerError: the path is taken, or cannot be written.
    """
    if why := refusal(path, tables.MANIFEST):
        raise ProfilerError(why)
    existed = path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / RESERVE).write_bytes(bytes(_RESERVE_BYTES))
        (path / RECORDER).mkdir()
    except OSError as error:
        if not existed:
            shutil.rmtree(path, ignore_errors=True)
        raise ProfilerError(f"cannot make the run directory {path}: {error.strerror}") from error


# ---------------------------------------------------------------- the recorder's tables


class RunWriter:
    """Appends the recorder's samples and stacks; safe to call from the collectors' threads.

    What is buffered is written at least every `_FLUSH_S` as long as records come. When the disk is full it says so
    once, counts what it drops, and the target goes on.
    """

    def __init__(self, run: Path, opener: Callable[[Path], IO[bytes]] | None = None) -> None:
        self.directory = run / RECORDER
        self.problem = ""
        self.dropped = 0
        self._open = opener or _open
        self._files: dict[str, IO[bytes]] = {}
        # texts before the records that point to them: dict order is the order of writing
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
        """Add rows of (pid, tid, name, value), all taken at `when` (ns)."""
        with self._lock:
            for pid, tid, name, value in rows:
                number = self._names.get(name)
                if number is None:
                    if len(self._names) >= _MOST_TEXTS:
                        self._names.clear()
                    number = self._names[name] = next(self._numbers[tables.NAMES])
                    self._text(tables.NAMES, {"id": number, "text": name})
                self._record("samples.bin", self._pack_sample(when, pid, tid, value, number, 0))
            self._flush_if_due()

    def stacks(self, rows: Sequence[tuple[int, int, int, int, tuple[Frame, ...], int]], table: str = "stacks") -> None:
        """Add rows of (begin, end, pid, tid, frames outermost first, active) to `table`: stacks or gil_stacks."""
        with self._lock:
            for begin, end, pid, tid, frames, active in rows:
                number = self._stacks.get(frames)
                if number is None:
                    if len(self._stacks) >= _MOST_TEXTS:
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
        """Write what is buffered and close the files."""
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

    def _flush_if_due(self) -> None:
        full = sum(map(len, self._buffers.values())) > _FLUSH_BYTES
        if full or time.monotonic() - self._flushed > _FLUSH_S:
            self._flush()

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        for name, buffer in self._buffers.items():
            if not buffer or self.problem:
                continue
            try:
                if name not in self._files:
                    self._files[name] = self._open(self.directory / name)
                _write_all(self._files[name], buffer)
            except OSError as error:
                self._fail(error)
            buffer.clear()

    def _fail(self, error: OSError) -> None:
        self.problem = error.strerror or str(error)
        for table in _TABLES:  # what was written is no longer in the buffer
            self.dropped += math.ceil(len(self._buffers[f"{table}.bin"]) / tables.packer(table).size)
        if tables.first_to_stop(self.directory) and sys.stderr is not None:
            with suppress(OSError):  # its terminal is gone
                print(f"profiler: recording stopped: {self.problem}; the target goes on", file=sys.stderr)


def _open(path: Path) -> IO[bytes]:
    return open(path, "ab", buffering=0)


def _write_all(file: IO[bytes], data: bytearray) -> None:
    """Move `data` into `file`. An unbuffered write may take only a part: on a nearly full disk it does, then fails."""
    while data:
        del data[: file.write(data)]
