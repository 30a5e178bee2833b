"""The gate's end of the lines to one program's processes: JSON, a line each way, and never a wait without an end."""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from profiler.core.errors import ProfilerError

_BLOCK: Final = 1 << 16
_LONGEST: Final = 107
"""Bytes of a socket's path: sockaddr_un has 108, the last one is zero (unix(7))."""
_SHORT: Final = ("/tmp", "/var/tmp", "/dev/shm")
"""Where a path is short, in case that the folder for temporary files has a long name."""
_PEER: Final = struct.Struct("3i")
"""struct ucred of unix(7): PID, user, group."""


class Line:
    """To one process."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.who: dict[str, Any] = {}
        """What it said of itself with its first words: pid, rank, ranks."""
        self._rest = b""

    @property
    def peer(self) -> int:
        """PID of the process that connected, as the kernel has it, in our numbers; 0: we cannot see that process."""
        pid: int = _PEER.unpack(self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0]
        return pid

    def send(self, said: Mapping[str, Any]) -> None:
        """:raises OSError: nobody is there any more."""
        self.connection.sendall(json.dumps(said).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]]:
        """What has come, whole lines.

        :raises EOFError: the other end is closed.
        :raises ValueError: it does not speak as our hooks do.
        """
        try:
            data = self.connection.recv(_BLOCK)
        except OSError as error:
            raise EOFError from error
        if not data:
            raise EOFError
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [_object(line) for line in whole]


class Switchboard:
    """All lines of one program: those that are there, and those that come.

    :param path: for the socket; where it is longer than a socket's may be, another one is taken (`self.path`).
    :raises ProfilerError: no socket can be made there.
    """

    def __init__(self, path: Path) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.path = path.absolute()
        if len(os.fsencode(self.path)) > _LONGEST:
            self._folder = _short_folder(self.path)
            self.path = Path(self._folder.name) / "socket"
        self.lines: list[Line] = []
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._server.bind(str(self.path))
        except OSError as error:
            self._server.close()
            raise ProfilerError(f"cannot make the socket {self.path}: {error.strerror or error}") from error
        self._server.listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)

    def heard(self, seconds: float) -> list[tuple[Line, dict[str, Any]]]:
        """What is said within so many seconds; lines that are closed are dropped."""
        said = []
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                connection, _ = self._server.accept()
                self._selector.register(connection, selectors.EVENT_READ, Line(connection))
                continue
            line: Line = key.data
            try:
                words = line.receive()
            except (EOFError, ValueError):
                self._drop(line)
                continue
            if words and line not in self.lines:
                self.lines.append(line)
            said += [(line, one) for one in words]
        return said

    def _drop(self, line: Line) -> None:
        self._selector.unregister(line.connection)
        line.connection.close()
        if line in self.lines:
            self.lines.remove(line)

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                self._drop(key.data)
        self._selector.close()
        self._server.close()
        self.path.unlink(missing_ok=True)
        if self._folder is not None:
            self._folder.cleanup()


def _object(line: bytes) -> dict[str, Any]:
    """:raises ValueError: it is none."""
    try:
        said = json.loads(line)
    except RecursionError as error:
        raise ValueError("too deep") from error
    if not isinstance(said, dict):
        raise ValueError("no object")
    return said


def _short_folder(path: Path) -> tempfile.TemporaryDirectory[str]:
    """:raises ProfilerError: none can be made."""
    for folder in _SHORT:
        try:
            return tempfile.TemporaryDirectory(prefix="gate-", dir=folder)
        except OSError:
            continue
    raise ProfilerError(
        f"{path} is too long a name for a socket ({_LONGEST} bytes at most): set TMPDIR to a folder with a shorter one"
    )
