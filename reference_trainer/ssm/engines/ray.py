"""A Ray cluster: where one machine is too small. An extra: `pip install 'training-profiler[ray]'`.

A worker is an actor with one core and its share of a GPU. A task of Ray would not do: Ray gives its processes to
whichever task is next and shows it another GPU, while torch stays with the one that it began with. Actors that die,
alone or with their node, are made anew wherever there is room, and their task is done again meanwhile by others.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import floor
from typing import Any, Final

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig, refuse
from reference_trainer.ssm.engine import (
    MOST_DEATHS,
    ONE_THREAD,
    EnginePlugin,
    Failure,
    R,
    T,
    Work,
    accepted,
    attempt,
    prepared,
)
from reference_trainer.ssm.placement import AUTO, CPU, CUDA, Device, Place, Placement, Taken, cores

_STORE: Final = 100 << 20
"""Bytes of the object store of a cluster of our own, near the least that Ray takes: results are small."""
_MOST_FALSE_STARTS: Final = 3
_START_S: Final = 120.0
"""After this a sweep begins with the actors that there are: others may have work on the cluster. With none it ends."""
_ANSWER_S: Final = 10.0
_FRAME_BYTES: Final = 9
"""Of the head of a frame of HTTP/2."""
_OF_RAY: Final = {"max_load": "Ray places work on its cluster by cores and GPUs"}


class Cluster:
    """Workers that are actors."""

    places: tuple[str, ...] = ()

    def __init__(self, address: str | None) -> None:
        """:raises TrainerError: Ray is not installed."""
        self._ray = _imported()
        self._address = address
        self._connected = False
        self._actors: list[_Actor] = []
        self._options: dict[str, float] = {"num_cpus": 1}
        self._sharing = 1
        """Actors that have a GPU together."""
        self._redone = 0

    @property
    def workers(self) -> int:
        """Those that were started."""
        return len(self._actors)

    @property
    def redone(self) -> int:
        """How often a task was begun again, because the actor that had it died."""
        return self._redone

    def place(self, device: str, config: PerformanceConfig, workers: int | None) -> Placement:
        """What the cluster has.

        :raises TrainerError: it cannot be reached, or has no such device.
        """
        if device not in (AUTO, CPU, CUDA):
            raise TrainerError(f"device {device}: a cluster chooses among its GPUs, name cuda, cpu or auto")
        refuse(config, _OF_RAY)
        self._connect(workers)
        gpus = self._has("GPU")
        if device == CUDA and not gpus:
            raise TrainerError("device cuda: no node of the cluster has a GPU")
        if device == CPU or not gpus:
            devices = [CPU]
        else:
            devices = [f"{CUDA}:{number}" for number in range(min(gpus, config.num_devices or gpus))]
        return Placement(tuple(Device(name, None, None, None) for name in devices), config.max_memory, workers)

    def start(self, placement: Placement, prepare: Callable[[Place], Taken]) -> None:
        """An actor a core, or as many as the GPUs hold by what the first one takes.

        :raises TrainerError: one could not be started, or the cluster has no room for any.
        """
        room = self._has("CPU")
        wanted = min(placement.workers or room, room)
        if placement.kind == CUDA:
            gpus = len(placement.devices)
            a_gpu = max(1, -(-wanted // gpus))  # more would divide its memory among actors that no core is left for
            if not placement.workers:
                a_gpu = min(a_gpu, self._fit(placement, prepare))
            self._options["num_gpus"], self._sharing = _share(a_gpu), a_gpu
            wanted = min(wanted, gpus * a_gpu)
        self._actors = [self._made(prepare) for _ in range(max(1, wanted))]
        greetings = {actor.hello: actor for actor in self._there(self._actors)}
        up, _ = self._ray.wait([*greetings], num_returns=len(greetings), timeout=_START_S)
        up = up or self._ray.wait([*greetings], num_returns=1)[0]
        for hello in up:
            accepted(self._first(greetings[hello]))
            greetings[hello].ready = True

    def run(self, work: Work[T, R], tasks: Iterable[T]) -> Iterator[tuple[T, R | Failure]]:
        """A task an actor at a time: who is done first gets the next."""
        waiting = deque(enumerate(tasks))
        deaths: Counter[int] = Counter()
        last: Failure | None = None
        doing: dict[Any, tuple[_Actor, int, T]] = {}
        while waiting or doing:
            for actor in self._actors:
                if waiting and actor.ready and actor.doing is None:
                    number, task = waiting.popleft()
                    actor.doing = actor.handle.attempt.remote(work, task)
                    doing[actor.doing] = actor, number, task
            starting = {actor.hello: actor for actor in self._actors if not actor.ready}
            if not doing and not starting:
                break
            with marks.region("workers"):
                [reference], _ = self._ray.wait([*doing, *starting], num_returns=1)
            if reference in starting:
                last = self._look_at_start(starting[reference])
                continue
            actor, number, task = doing.pop(reference)
            actor.doing = None
            result = self._result(reference)
            if result is not None:
                yield task, result
                continue
            self._replace(actor)
            deaths[number] += 1
            if deaths[number] < MOST_DEATHS:
                waiting.appendleft((number, task))
                self._redone += 1
            else:
                yield task, Failure.death()
        for _, task in waiting:
            yield task, Failure.no_worker(last)

    def close(self) -> None:
        """End the actors, whatever they do, and leave the cluster; one of our own ends."""
        for actor in self._actors:
            self._ray.kill(actor.handle)
        self._actors = []
        if self._connected:
            self._connected = False
            self._ray.shutdown()

    # ------------------------------------------------------------ actors

    def _made(self, prepare: Callable[[Place], Taken]) -> _Actor:
        handle = self._ray.remote(**self._options)(_Worker).remote(self._sharing)
        return _Actor(handle, handle.there.remote(), handle.hello.remote(prepare), prepare)

    def _there(self, actors: list[_Actor]) -> list[_Actor]:
        """Those that a node has room for: their first work may take as long as it does, waiting for a core may not.

        :raises TrainerError: none.
        """
        found = {actor.there: actor for actor in actors}
        there, _ = self._ray.wait([*found], num_returns=len(found), timeout=_START_S)
        if not there:
            what = "a core and a share of a GPU" if "num_gpus" in self._options else "a core"
            raise TrainerError(
                f"engine ray: no node of the cluster had {what} free for a worker within {_START_S:.0f} s: "
                "wait until its other work is done, or name another cluster with --address"
            )
        return [found[reference] for reference in there]

    def _first(self, actor: _Actor) -> Taken | Failure:
        result = self._result(actor.hello)
        return Failure("an actor died while it started: killed, or out of memory") if result is None else result

    def _fit(self, placement: Placement, prepare: Callable[[Place], Taken]) -> int:
        """Actors that a GPU holds: one has it for itself first."""
        self._options["num_gpus"] = 1
        actor = self._made(prepare)
        try:
            taken = accepted(self._first(*self._there([actor])))
        finally:
            self._ray.kill(actor.handle)
        return max(1, floor(1 / placement.share(taken)))

    def _result(self, reference: Any) -> Any:
        """None: the actor died."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:  # before or after the task: what it takes or gives cannot be sent
            return Failure.of(error.cause or error)
        except errors.RayError:
            return None

    def _replace(self, actor: _Actor) -> None:
        """Another in its place, which is ready when a node has room for it."""
        self._ray.kill(actor.handle)
        new = self._made(actor.prepare)
        new.false_starts = actor.false_starts
        self._actors[self._actors.index(actor)] = new

    def _look_at_start(self, actor: _Actor) -> Failure | None:
        """Whether it is ready; what its first work failed by, if it did and the actor did not die of it."""
        found = self._result(actor.hello)
        if found is not None and not isinstance(found, Failure):
            actor.ready, actor.false_starts = True, 0
            return None
        actor.false_starts += 1
        if actor.false_starts < _MOST_FALSE_STARTS:
            self._replace(actor)
        else:
            self._actors.remove(actor)
            self._ray.kill(actor.handle)
        return found

    # ------------------------------------------------------------ the cluster

    def _connect(self, workers: int | None) -> None:
        if self._connected:
            return
        self._knock()
        usual = signal.getsignal(signal.SIGTERM)
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address is None:
            own = {"num_cpus": workers or cores(), "object_store_memory": _STORE, "_node_ip_address": "127.0.0.1"}
            options |= {"address": "local", "include_dashboard": False, **own}
        else:
            options["address"] = self._address
        try:
            self._ray.init(**options)
        except (self._ray.exceptions.RayError, ValueError, RuntimeError, OSError) as error:
            raise self._unreachable(error) from None
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, usual)  # Ray takes it
        self._connected = True

    def _knock(self) -> None:
        """Ray itself waits for minutes where nobody answers, or something else than Ray does."""
        host, _, port = (self._address or "").rpartition(":")
        if host and port.isdecimal() and "/" not in host:
            try:
                with socket.create_connection((host, int(port)), timeout=_ANSWER_S) as line:
                    if not os.environ.get("RAY_USE_TLS"):
                        _must_be_grpc(line)
            except (OSError, OverflowError) as error:
                raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> TrainerError:
        where = "engine ray" if self._address is None else f"--address {self._address}"
        return TrainerError(f"{where}: no cluster could be reached: {' '.join(str(error).split())}")

    def _has(self, resource: str) -> int:
        return int(self._ray.cluster_resources().get(resource, 0))


def _must_be_grpc(line: socket.socket) -> None:
    """Whether it answers as servers of gRPC do: with the SETTINGS of HTTP/2 (RFC 9113, 3.4 and 6.5).

    :raises OSError: it does not, or not in time.
    """
    line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    answer = b""
    while len(answer) < _FRAME_BYTES:
        more = line.recv(_FRAME_BYTES - len(answer))
        if not more:
            break
        answer += more
    if len(answer) < _FRAME_BYTES or answer[3:5] != b"\4\0":
        raise OSError("what listens there is not Ray")


@dataclass(slots=True, eq=False)
class _Actor:
    """One actor, as seen from here."""

    handle: Any
    there: Any
    """Done when a node has room for it."""
    hello: Any
    prepare: Callable[[Place], Taken] = field(repr=False)
    ready: bool = False
    doing: Any = None
    false_starts: int = 0


def _share(a_gpu: int) -> float:
    """Of a GPU for each of so many actors: Ray counts ten-thousandths, and all of them must fit."""
    return 1.0 if a_gpu == 1 else floor(10_000 / a_gpu) / 10_000


def _imported() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise TrainerError(
            "engine ray: Ray is not installed: pip install ray (or the extra ray of this project)"
        ) from None


# ---------------------------------------------------------------- in the actor


class _Worker:
    """What an actor is."""

    def __init__(self, sharing: int) -> None:
        os.environ.update(ONE_THREAD)
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)
        self._place = _here()._replace(sharing=sharing)

    def there(self) -> None:
        """It has its core."""

    def hello(self, prepare: Callable[[Place], Taken]) -> Taken | Failure:
        """Its first work."""
        try:
            return prepared(prepare, self._place)
        except TrainerError as error:
            return Failure.of(error)

    def attempt(self, work: Work[T, R], task: T) -> R | Failure:
        """A task."""
        return attempt(work, task, self._place)


def _here() -> Place:
    ray = _imported()
    node = ray.get_runtime_context().get_node_id()[:8]
    numbers = ray.get_gpu_ids()
    if not numbers:
        return Place(CPU, f"{node}/{CPU}")
    return Place(f"{CUDA}:0", f"{node}/{CUDA}:{numbers[0]}")  # Ray shows an actor its own GPU only


PLUGIN = EnginePlugin("ray", "a Ray cluster: the one at --address, or one of its own on this machine", Cluster)
