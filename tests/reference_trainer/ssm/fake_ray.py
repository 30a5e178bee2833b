"""A stand-in for Ray in this process: an actor does at once what it is asked, or never if the cluster is full."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any


class RayError(Exception):
    """An actor died."""


class RayTaskError(RayError):
    """A task raised an exception."""


class Killed(BaseException):
    """A task that raises this kills its actor."""


class FakeRay:
    """The part of Ray that the engine uses.

    :param actors: number of actors for which the cluster has room.
    """

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, *, actors: int, gpus: int = 0, cores: int = 2) -> None:
        self.room = actors
        self._has = {"CPU": cores, "GPU": gpus}
        self.options: list[dict[str, float]] = []
        """The options of each actor that was requested."""
        self.killed = 0
        self.joined = False
        self.signals: list[int] = []
        """Signals that come while the cluster is joined."""

    def init(self, **options: object) -> None:
        """Join, as Ray does: with a handler of SIGTERM."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for number in self.signals:
            signal.raise_signal(number)
        self.joined = True

    def shutdown(self) -> None:
        self.joined = False

    def cluster_resources(self) -> dict[str, float]:
        return {name: float(count) for name, count in self._has.items() if count}

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "0123456789")

    def get_gpu_ids(self) -> list[int]:
        return [0] if self._has["GPU"] else []

    def remote(self, **options: float) -> Callable[[type], Any]:
        def make(kind: type, *arguments: object) -> _Handle:
            self.options.append(options)
            self.room -= 1
            return _Handle(kind(*arguments) if self.room >= 0 else None)

        return lambda kind: SimpleNamespace(remote=lambda *arguments: make(kind, *arguments))

    def kill(self, handle: _Handle) -> None:
        self.killed += 1
        if handle.actor is not None:
            self.room += 1
            handle.actor = None


class _Handle:
    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self._dead = False

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: SimpleNamespace(future=lambda: self._call(name, arguments)))

    def _call(self, name: str, arguments: Sequence[Any]) -> Future[Any]:
        future: Future[Any] = Future()
        if self._dead:
            future.set_exception(RayError("dead"))
        elif self.actor is not None:
            try:
                future.set_result(getattr(self.actor, name)(*arguments))
            except Killed:
                self._dead = True
                future.set_exception(RayError("dead"))
        return future
