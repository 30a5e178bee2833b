"""Writes the folder of a recorded process: buffered tables, names, places and facts."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from profiler.agent.bootstrap import warn
from profiler.run import tables

_FIRST_DESCRIPTOR: Final = 3
"""Lower numbers are the standard streams, open or closed: never ours."""


class SourceFolder:
    """Folder `run`/source-PID of this process.

    :param describe: returns what source.json says of the process; called in it whenever that file is written.
    """

    def __init__(self, run: Path, describe: Callable[[], Mapping[str, Any]]) -> None:
        self.pid = os.getpid()
        self.path = run / tables.source_name(self.pid)
        """Final once the folder exists: a process that had our pid before has the first name."""
        self.failed = ""
        """Why nothing more is written; empty while recording works."""
        self._describe = describe
        self._exists = False
        # reentrant, since a signal's handler may record in the middle of anything
        self._making = threading.RLock()
        self._writing_metadata = threading.RLock()
        self._metadata_writes = count()

    def is_ours(self) -> bool:
        """Tell whether this process owns the folder: a fork inherits its parent's, and may not write to it."""
        return self.pid == os.getpid()

    def make(self) -> None:
        """Make the folder and describe the process in it, if that has not been done."""
        if not self._exists and not self.failed and self.is_ours():
            with self._making:
                self._make_once()

    def _make_once(self) -> None:
        if self._exists or self.failed:  # another thread was first
            return
        try:
            self._make_new()
        except OSError as error:
            self.fail(error)
        else:
            self.update_metadata()

    def _make_new(self) -> None:
        """Another process may have had our pid before, or this one may have been another program: skip its folder."""
        run = self.path.parent
        for number in count(1):
            folder = run / tables.source_name(self.pid, number)
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            if self._exists:  # a signal's handler made one meanwhile
                folder.rmdir()
            else:
                self.path, self._exists = folder, True  # now that it exists, other threads may write into it
            return

    def fail(self, error: Exception) -> None:
        """Stop recording and report that once a run; the program goes on."""
        if not self.failed:
            self.failed = str(error) or type(error).__name__
            if tables.first_to_stop(self.path):
                warn(f"recording stopped: {getattr(error, 'strerror', None) or self.failed}; the program goes on")

    def is_released(self) -> bool:
        """Tell whether enough has been recorded: the process is to go on without being recorded."""
        return os.path.exists(self.path.parent / tables.RELEASED)  # noqa: PTH110 - Path.exists raises for some errors

    def stop_if_run_ended(self) -> None:
        """Write no more in a process that outlives its run; one whose recorder was killed goes on writing."""
        pid = os.environ.get(tables.ENV_RECORDER, "")
        if not pid.isdecimal() or Path(f"/proc/{pid}").exists():
            return
        try:
            manifest = json.loads((self.path.parent / tables.MANIFEST).read_bytes())
            ended = manifest["state"] != "running"
        except (OSError, ValueError, KeyError, TypeError):
            return
        if ended:
            self.failed = self.failed or "the run has ended"

    def write_metadata(self) -> None:
        """Write the metadata now, even if the process has recorded nothing yet."""
        if self._exists:
            self.update_metadata()
        else:
            self.make()

    def update_metadata(self) -> None:
        """Write the metadata again if there are any; they are written with the first record anyway."""
        if not self._exists or self.failed or not self.is_ours():
            return
        with self._writing_metadata:
            try:
                text = json.dumps(self._describe(), default=str)
                # the number makes the name unique: a signal's handler may do the same in the middle of this
                temporary = self.path / f"{tables.SOURCE_META}.{next(self._metadata_writes)}.new"
                temporary.write_text(text, encoding="utf-8")
                temporary.replace(self.path / tables.SOURCE_META)
            except OSError as error:
                self.fail(error)
            except Exception as error:  # noqa: BLE001 - a fact of the program cannot be converted; records go on
                warn(f"facts of this process could not be written: {type(error).__name__}: {error}")


class AppendedFile:
    """A file that is opened when it is first appended to, and stays open: opening takes milliseconds on some disks.

    A program may close every descriptor (as daemons do) and open a file of its own under the same number. So before
    each write the descriptor is checked (0.5 µs), and a file that is not ours is neither written to nor closed.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._descriptor = -1
        self._identity = (0, 0)

    def append(self, folder: Path, data: memoryview) -> None:
        """:raises OSError: it cannot be opened, or not all of it could be written."""
        if not self._is_ours():
            self._open(folder)
        written = 0
        while written < len(data):  # a nearly full disk takes a part, and then fails
            written += os.write(self._descriptor, data[written:])

    def close(self) -> None:
        if self._is_ours():
            os.close(self._descriptor)
        self._descriptor = -1

    def _is_ours(self) -> bool:
        if self._descriptor < 0:
            return False
        try:
            status = os.fstat(self._descriptor)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    def _open(self, folder: Path) -> None:
        descriptor = os.open(folder / self._name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        if descriptor < _FIRST_DESCRIPTOR:
            low, descriptor = descriptor, fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
            os.close(low)
        status = os.fstat(descriptor)
        self._descriptor, self._identity = descriptor, (status.st_dev, status.st_ino)


# ---------------------------------------------------------------- buffered tables

_FLUSH_BYTES: Final = 1 << 16  # a write() this large costs about as much as a small one
_MAX_SITES: Final = 10_000  # numbers of places in the code that are cached: a program may generate code forever
_MAX_TEXTS: Final = 20_000  # that are remembered: a program may make up names without end


class RecordBuffer:
    """One append-only table, buffered; the file appears with its first flush. Any thread may append.

    Records wait in a deque, whose append and popleft need no lock: a write gives up the GIL, and other threads go on.
    The lock is reentrant, since the handler of a signal may record in the middle of a flush.
    """

    def __init__(self, folder: SourceFolder, table: str) -> None:
        packer = tables.packer(table)
        self.pack = packer.pack
        self._max_records = _FLUSH_BYTES // packer.size
        self._records: deque[bytes] = deque()
        self.append = self._records.append
        """`append(pack(...))` does the same as `write` without a call, for the most frequent records. Callers call
        `Recorder.flush_if_due` often enough."""
        self._folder = folder
        self._file = AppendedFile(f"{table}.bin")
        self._writing = threading.RLock()

    def write(self, *fields: float) -> None:
        """Append one record."""
        self.append(self.pack(*fields))
        if len(self._records) >= self._max_records:
            self.flush()

    def append_records(self, records: bytes | bytearray | memoryview) -> None:
        """Append packed records; a large block is written without a copy."""
        if len(records) < _FLUSH_BYTES:
            self._records.append(bytes(records))
        else:
            self.flush()
            with self._writing:
                self._write_out(memoryview(records))

    def flush(self) -> None:
        with self._writing:
            records, data = self._records, bytearray()
            while records:
                data += records.popleft()
            self._write_out(memoryview(data))

    def close(self) -> None:
        self._file.close()

    def _write_out(self, data: memoryview) -> None:
        if not data or not self._folder.is_ours():
            return
        self._folder.make()
        if self._folder.failed:
            return
        try:
            self._file.append(self._folder.path, data)
        except OSError as error:
            self._folder.fail(error)


class InternedTexts(dict[Any, int]):
    """Numbers texts, and writes each as a line of JSON when it is first used.

    `texts[key]` is `texts.intern(key)`, without a call when the key is known. At most `_MAX_TEXTS` are remembered: one
    that is used again later gets another line and another number.
    """

    def __init__(self, folder: SourceFolder, file_name: str) -> None:
        self._numbers = count()
        self._folder = folder
        self._file_name = file_name
        self._adding = threading.RLock()

    def __missing__(self, key: Any) -> int:
        return self.intern(key)

    def intern(self, key: Any, make_line: Callable[[], Mapping[str, Any]] | None = None) -> int:
        """Return the number of `key`.

        :param make_line: returns what the file says of it; by default the key is its text.
        """
        number = self.get(key)
        if number is not None:
            return number
        if not self._folder.is_ours():  # in a fork's child the lock may be held by a thread that does not exist there
            return -1
        with self._adding:
            number = self.get(key)
            if number is not None:
                return number
            if len(self) >= _MAX_TEXTS:
                self.clear()
            number = next(self._numbers)
            self._write_line({"id": number, **(make_line() if make_line else {"text": key})})
            self[key] = number  # last: another thread must not use a number that is not written yet
        return number

    def _write_line(self, line: Mapping[str, Any]) -> None:
        self._folder.make()
        if not self._folder.failed:
            try:
                with open(self._folder.path / self._file_name, "a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
            except OSError as error:
                self._folder.fail(error)


class Sites:
    """Numbers the lines of the program's code."""

    def __init__(self, folder: SourceFolder) -> None:
        self._texts = InternedTexts(folder, tables.SITES)
        self._numbers: dict[int, int] = {}
        """By `id(code)` plus the instruction, an address within the code object, and so of no other one while `_codes`
        keeps it alive. Hashing a code object would take 1 µs."""
        self._codes: list[CodeType] = []

    def of_frame(self, frame: FrameType) -> int:
        """Return the number of the line that `frame` is at."""
        code = frame.f_code
        key = id(code) + frame.f_lasti  # f_lineno decodes a table each time, so numbers are cached
        number = self._numbers.get(key)
        if number is None:
            number = self.of_line(code.co_filename, frame.f_lineno, code.co_qualname)
            if len(self._codes) < _MAX_SITES:
                self._codes.append(code)
                self._numbers[key] = number
        return number

    def of_line(self, file: str, line: int, function: str) -> int:
        """Return the number of a line."""
        return self._texts.intern((file, line), lambda: {"file": file, "line": line, "function": function})
