"""Lets a program run step by step: the socket, and the commands through it."""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from profiler.core.errors import ProfilerError
from profiler.run import tables
from profiler.run.model import StepDefinition
from profiler.run.step_detection import choose_boundary, define_step

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
        """Return the PID of the connected process in our PID namespace; 0 if that process is not visible from here."""
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
    """Return a folder that nobody else may enter, with a name short enough for sockets.

    :raises ProfilerError: there is none.
    """
    for parent in (tempfile.gettempdir(), *_FOLDERS):
        if len(os.fsencode(parent)) <= _MAX_FOLDER_BYTES - len("/gate-12345678"):
            with suppress(OSError):
                return tempfile.TemporaryDirectory(prefix="gate-", dir=parent)
    raise ProfilerError("there is no folder for sockets: set TMPDIR to a folder with a short name")


# ---------------------------------------------------------------- the commands through the socket

_ALONE_S: Final = 0.3
"""A rank that has waited this long while others have not arrived is sent on, because the others may be waiting for
it."""
_MAX_SOLO_STEPS: Final = 64
"""After so many solo steps the other ranks are assumed never to step, for example the actors of a learner or parameter
servers."""


@dataclass(slots=True, eq=False)
class Rank:
    """One connected process."""

    socket: ControlSocket
    pid: int = 0
    rank: int = 0
    world_size: int = 1
    priority: int = 0
    """Precedence of the event that ends its steps: a mark precedes an optimizer, which precedes a loader."""
    target: int | None = None
    """Number of the step at whose end it waits, or to which it runs; None: it has not reached any."""
    waiting_since: float | None = None
    solo_steps: int = 0
    """Number of steps that it was last sent on by itself."""


class StepController:
    """Drives all ranks of one program.

    :param path: of the control socket.
    """

    def __init__(self, path: Path) -> None:
        self.server = ControlServer(path)
        self.ranks: tuple[Rank, ...] = ()
        """The ranks that are driven, the leader first; empty until all of them have been aligned."""
        self.prefetch = 0
        """Batches that the program's data loaders prepare ahead."""
        self.uses_device = False
        """Whether the program queues work on an asynchronous device."""
        self.step: StepDefinition | None = None
        self.files: tuple[str, ...] = ()
        """Files of the modules that the program has loaded, except installed ones."""
        self.skipped_steps = 0
        """Steps that the program took before it first waited."""
        self.reached_step = False
        self._connected: dict[ControlSocket, Rank] = {}
        self._some_never_step = False

    @property
    def expected_ranks(self) -> int:
        """Return the number of ranks that step, as they report it themselves; 1 until one of them has connected."""
        connected = self._open_ranks()
        return len(connected) if self._some_never_step else max((rank.world_size for rank in connected), default=1)

    @property
    def waiting_ranks(self) -> int:
        return sum(rank.waiting_since is not None for rank in self._open_ranks())

    @property
    def lost_rank(self) -> bool:
        """Return whether a driven rank has closed its connection."""
        return any(rank.socket not in self.server.connections for rank in self.ranks)

    def poll(self, timeout_s: float) -> list[tuple[Rank, dict[str, Any]]]:
        """Answer what the ranks report within `timeout_s`; returns the messages of ranks that may be driven."""
        messages = []
        for connection, message in self.server.poll(timeout_s):
            rank = self._connected.setdefault(connection, Rank(connection))
            rank.pid = message.get("pid", rank.pid)
            rank.rank = message.get("rank", rank.rank)
            rank.world_size = int(message.get("ranks", rank.world_size))
            if self.ranks and rank not in self.ranks:
                with suppress(OSError):  # it connected after alignment: an evaluation, a helper process
                    connection.send({"free": True})
                continue
            self._update(rank, message)
            messages.append((rank, message))
        return messages

    def align(self) -> bool:
        """Send on the ranks that are behind; True when all wait at the end of the same step."""
        waiting = [rank for rank in self.ranks or self._open_ranks() if rank.waiting_since is not None]
        if len(waiting) < max(1, self.expected_ranks, len(self.ranks)):
            self._send_alone(waiting)
            return False
        highest = max(rank.priority for rank in waiting)
        if self.expected_ranks > 1 and (lower := [rank for rank in waiting if rank.priority < highest]):
            # they wait at an event that other ranks have already found not to end a step
            self._send_alone(lower)
            return False
        if self._catch_up(waiting):
            return False
        self.ranks = tuple(sorted(waiting, key=lambda rank: (rank.rank, rank.pid)))
        self.skipped_steps = self.skipped_steps or self.ranks[0].target or 0
        return True

    def advance(self, steps: int) -> None:
        """Let all driven ranks run `steps` steps."""
        for rank in self.ranks:
            self._advance(rank, steps)

    def close(self) -> None:
        self.server.close()

    def _open_ranks(self) -> list[Rank]:
        return [self._connected[connection] for connection in self.server.connections]

    def _update(self, rank: Rank, message: dict[str, Any]) -> None:
        self.prefetch = max(self.prefetch, int(message.get("prefetch", 0)))
        self.uses_device |= bool(message.get("queues"))
        self.files = tuple(map(str, message.get("files", self.files)))
        rank.waiting_since = None
        if "seen" not in message:
            self.reached_step = True
            rank.waiting_since, rank.target = time.monotonic(), int(message.get("count", 0))
            return
        rank.target = None
        events = [str(key) for key in message["seen"]]
        key = choose_boundary(events)
        if key is not None:
            self.step = define_step(key)
            rank.priority = tables.boundary_priority(key)
        with suppress(OSError):
            rank.socket.send({"look": 2 * len(events)} if key is None else {"key": key})

    def _send_alone(self, waiting: Sequence[Rank]) -> None:
        """Send on ranks that wait while others do not arrive, because those may be waiting for them.

        They run to where another rank is going, else twice as many steps as the last time: what they wait at may be
        a validation that only they do.
        """
        connected = self._open_ranks()
        if self.expected_ranks > 1 and not self._catch_up(connected):
            for rank in waiting:
                if time.monotonic() - (rank.waiting_since or 0.0) > _ALONE_S:
                    rank.solo_steps = 2 * rank.solo_steps or 1
                    self._some_never_step |= rank.solo_steps > _MAX_SOLO_STEPS and len(connected) < self.expected_ranks
                    self._advance(rank, rank.solo_steps)

    def _catch_up(self, ranks: Sequence[Rank]) -> bool:
        """Send waiting ranks to the furthest step that any rank waits at or runs to; return whether any rank was
        behind."""
        targets = [(rank, rank.target) for rank in ranks if rank.target is not None]
        highest = max((rank.priority for rank, _ in targets), default=0)
        targets = [(rank, target) for rank, target in targets if rank.priority == highest]  # others count other events
        furthest = max((target for _, target in targets), default=0)
        behind = [(rank, target) for rank, target in targets if rank.waiting_since is not None and target < furthest]
        for rank, target in behind:
            self._advance(rank, furthest - target)
        return bool(behind)

    def _advance(self, rank: Rank, steps: int) -> None:
        rank.waiting_since = None
        rank.target = (rank.target or 0) + steps
        with suppress(OSError):
            rank.socket.send({"steps": steps})
