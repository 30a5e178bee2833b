"""Brings all ranks of a program to the end of the same training step, then lets them run a given number of steps.

Each rank connects at its first possible step boundary and reports the boundary events it has seen. The controller
chooses the event that ends a step. From then on a rank stops at the end of a step, reports, and waits until it
receives the number of steps to run next.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from profiler.check.speed.control_socket import ControlServer, ControlSocket
from profiler.run import tables
from profiler.run.model import StepDefinition
from profiler.run.step_detection import choose_boundary, define_step

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
        """Number of ranks that step, as they report it themselves; 1 until one of them has connected."""
        connected = self._open_ranks()
        return len(connected) if self._some_never_step else max((rank.world_size for rank in connected), default=1)

    @property
    def waiting_ranks(self) -> int:
        return sum(rank.waiting_since is not None for rank in self._open_ranks())

    @property
    def lost_rank(self) -> bool:
        """Whether a driven rank has closed its connection."""
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
