"""The gate's end of the lines to one program's processes: JSON, a line each way, and never a wait without an end."""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_BLOCK: Final = 1 << 16


class Line:
    """To one process."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.who: dict[str, Any] = {}
        """What it said of itself with its first words: pid, rank, ranks."""
        self._rest = b""

    def send(self, said: Mapping[str, Any]) -> None:
        """:raises OSError: nobody is there any more."""
        self.connection.sendall(json.dumps(said).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]]:
        """What has come, whole lines.

        :raises EOFError: the other end is closed.
        """
        try:
            data = self.connection.recv(_BLOCK)
        except OSError as error:
            raise EOFError from error
        if not data:
            raise EOFError
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in whole]


class Switchboard:
    """All lines of one program: those that are there, and those that come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[Line] = []
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(path))
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
                said += [(line, one) for one in line.receive()]
            except (EOFError, ValueError):
                self._drop(line)
                continue
            if said and line not in self.lines:
                self.lines.append(line)
        return said

    def _drop(self, line: Line) -> None:
        self._selector.unregister(line.connection)
        line.connection.close()
        if line in self.lines:
            self.lines.remove(line)

    def close(self) -> None:
        for line in list(self.lines):
            self._drop(line)
        self._selector.close()
        self._server.close()
        self.path.unlink(missing_ok=True)
