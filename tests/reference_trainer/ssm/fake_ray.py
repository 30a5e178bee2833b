"""A stand-in for Ray in this process: actors have what they are asked at once, or never where the cluster is full."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any


class RayError(Exception):
    """Of Ray itself: an actor died."""


class RayTaskError(RayError):
    """Of a task."""


class Killed(BaseException):
    """A task that raises this takes its actor with it."""


class Reference:
    """What a call will give."""

    def __init__(self, *, done: bool) -> None:
        self.done = done
        self.value: Any = None
        self.error: RayError | None = None


class FakeRay:
    """Only what the engine uses."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, *, actors: int, gpus: int = 0, cores: int = 2) -> None:
        """:param actors: that the cluster has room for."""
        self._free = actors
        self._has = {"CPU": cores, "GPU": gpus}
        self.asked: list[dict[str, float]] = []
        """Of each actor the options."""
        self.killed = 0
        self.joined = False
        self.meanwhile: list[int] = []
        """Signals that come while it is joined."""

    def init(self, **options: object) -> None:
        """Joined, after what is to happen meanwhile; Ray takes SIGTERM."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for number in self.meanwhile:
            signal.raise_signal(number)
        self.joined = True

    def lose_room(self) -> None:
        """No actor that is made from now on finds a place."""
        self._free -= 1_000

    def shutdown(self) -> None:
        """Left."""
        self.joined = False

    def cluster_resources(self) -> dict[str, float]:
        return {name: float(count) for name, count in self._has.items() if count}

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "0123456789")

    def get_gpu_ids(self) -> list[int]:
        return [0] if self._has["GPU"] else []

    def remote(self, **options: float) -> Callable[[type], Any]:
        def decorated(kind: type) -> Any:
            def made(*arguments: object) -> _Handle:
                self.asked.append(options)
                self._free -= 1
                return _Handle(kind(*arguments) if self._free >= 0 else None)

            return SimpleNamespace(remote=made)

        return decorated

    def wait(
        self, references: Sequence[Reference], *, num_returns: int, timeout: float | None = None
    ) -> tuple[list[Reference], list[Reference]]:
        done = [item for item in references if item.done][:num_returns]
        assert timeout is not None or len(done) == num_returns, "this would wait for ever"
        return done, [item for item in references if item not in done]

    def get(self, reference: Reference) -> Any:
        assert reference.done, "this would wait for ever"
        if reference.error:
            raise reference.error
        return reference.value

    def kill(self, handle: _Handle) -> None:
        self.killed += 1
        if handle.actor is not None:
            self._free += 1
            handle.actor = None


class _Handle:
    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self._dead = False

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: self._call(name, arguments))

    def _call(self, name: str, arguments: Sequence[Any]) -> Reference:
        reference = Reference(done=self.actor is not None)
        if self.actor is None:
            return reference
        try:
            if self._dead:
                raise Killed
            reference.value = getattr(self.actor, name)(*arguments)
        except Killed:
            self._dead = True
            reference.error = RayError("dead")
        return reference
