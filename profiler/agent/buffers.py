"""Buffers of the recorder: append-only tables of fixed-width records, and texts that records refer to by number."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

from profiler.agent.source_folder import AppendedFile, SourceFolder
from profiler.run import tables

_FLUSH_BYTES: Final = 1 << 16  # a write() this large costs about as much as a small one
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
        """The number of `key`.

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
