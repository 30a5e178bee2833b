"""Opens the sockets on which a controlled program's processes report and wait, on the side of `check`.

Both directions carry one JSON object per line. `profiler.agent.control_client` is the other end.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from profiler.core.errors import ProfilerError

_RECEIVE_BYTES: Final = 1 << 16
_MAX_FOLDER_BYTES: Final = 80
"""sockaddr_un has room for 107 bytes (unix(7)), of which the name of a socket takes less than 27."""
_FOLDERS: Final = ("/tmp", "/var/tmp", "/dev/shm")
"""Used where the folder for temporary files has too long a name."""
_UCRED: Final = struct.Struct("3i")
"""struct ucred of unix(7): PID, user, group."""


class ControlSocket:
    """The connection to one process."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._buffer = b""

    @property
    def peer_pid(self) -> int:
        """PID of the connected process in our PID namespace; 0 if that process is not visible from here."""
        pid: int = _UCRED.unpack(self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))[0]
        return pid

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message.

        :raises OSError: the process has closed its end.
        """
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived completely.

        :raises EOFError: the process has closed its end.
        :raises ValueError: it sent something other than JSON objects.
        """
        try:
            data = self.connection.recv(_RECEIVE_BYTES)
        except OSError as error:
            raise EOFError from error
        if not data:
            raise EOFError
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if not all(isinstance(message, dict) for message in messages):
            raise ValueError("not a JSON object")
        return messages


class ControlServer:
    """Accepts the connections of one program's processes and collects their messages.

    :param path: where to create the socket, in a `private_folder`.
    :raises ProfilerError: no socket can be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.connections: list[ControlSocket] = []
        """Open connections that have sent a message."""
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._server.bind(str(self.path))
        except OSError as error:
            self._server.close()
            raise ProfilerError(f"cannot create the socket {self.path}: {error.strerror or error}") from error
        self._server.listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)

    def poll(self, timeout_s: float) -> list[tuple[ControlSocket, dict[str, Any]]]:
        """Wait up to `timeout_s` for messages. Connections that were closed or sent garbage are dropped."""
        messages: list[tuple[ControlSocket, dict[str, Any]]] = []
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                connection, _ = self._server.accept()
                self._selector.register(connection, selectors.EVENT_READ, ControlSocket(connection))
                continue
            control: ControlSocket = key.data
            try:
                received = control.receive()
            except (EOFError, ValueError):
                self._drop(control)
                continue
            if received and control not in self.connections:
                self.connections.append(control)
            messages += [(control, message) for message in received]
        return messages

    def _drop(self, control: ControlSocket) -> None:
        self._selector.unregister(control.connection)
        control.connection.close()
        if control in self.connections:
            self.connections.remove(control)

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                self._drop(key.data)
        self._selector.close()
        self._server.close()
        self.path.unlink(missing_ok=True)


def private_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that nobody else may enter, with a name short enough for sockets.

    :raises ProfilerError: there is none.
    """
    for parent in (tempfile.gettempdir(), *_FOLDERS):
        if len(os.fsencode(parent)) <= _MAX_FOLDER_BYTES - len("/gate-12345678"):
            with suppress(OSError):
                return tempfile.TemporaryDirectory(prefix="gate-", dir=parent)
    raise ProfilerError("there is no folder for sockets: set TMPDIR to a folder with a short name")
