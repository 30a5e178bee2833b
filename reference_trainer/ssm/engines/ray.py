"""A Ray cluster: where one machine is too small. An extra: `pip install 'training-profiler[ray]'`.

A worker is an actor with one core and its share of a GPU. A task of Ray would not do: Ray gives its processes to
whichever task is next and shows it another GPU, while torch stays with the one that it began with. Actors that die,
alone or with their node, are made anew wherever there is room, and their task is done again meanwhile by others.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import floor
from typing import Any, Final

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig, refuse
from reference_trainer.ssm.engine import (
    LOST,
    MAX_WORKER_DEATHS,
    ONE_THREAD,
    EnginePlugin,
    Failure,
    Prepare,
    R,
    T,
    Work,
    accepted,
    attempt,
    prepared,
)
from reference_trainer.ssm.engines._ray_cluster import Membership, imported
from reference_trainer.ssm.placement import AUTO, CPU, CUDA, Device, MemoryUse, Placement, WorkerSlot

_MOST_FALSE_STARTS: Final = 3
_START_S: Final = 120.0
"""After this a sweep begins with the actors that there are: others may have work on the cluster. With none it ends."""
_OF_RAY: Final = {"max_load": "Ray places work on its cluster by cores and GPUs"}


class Cluster:
    """Workers that are actors."""

    device_names: tuple[str, ...] = ()

    def __init__(self, address: str | None) -> None:
        """:raises TrainerError: Ray is not installed."""
        self._ray = imported()
        self._cluster = Membership(self._ray, address)
        self._actors: list[_Actor] = []
        self._options: dict[str, float] = {"num_cpus": 1}
        self._sharing = 1
        """Actors that have a GPU together."""
        self._redone = 0
        self._last: Failure | None = None
        """What the actor that was last to start failed by."""

    @property
    def workers(self) -> int:
        """Those that were started."""
        return len(self._actors)

    @property
    def redone(self) -> int:
        """How often a task was begun again, because the actor that had it died."""
        return self._redone

    def find_devices(self, device: str, config: PerformanceConfig, workers: int | None) -> Placement:
        """What the cluster has.

        :raises TrainerError: it cannot be reached, or has no such device.
        """
        if device not in (AUTO, CPU, CUDA):
            raise TrainerError(f"device {device}: a cluster chooses among its GPUs, name cuda, cpu or auto")
        refuse(config, _OF_RAY)
        self._cluster.join(workers)
        gpus = self._cluster.has("GPU")
        if device == CUDA and not gpus:
            raise TrainerError("device cuda: no node of the cluster has a GPU")
        if device == CPU or not gpus:
            devices = [CPU]
        else:
            devices = [f"{CUDA}:{number}" for number in range(min(gpus, config.num_devices or gpus))]
        return Placement(tuple(Device(name, None, None, None) for name in devices), config.max_memory, workers)

    def start(self, placement: Placement, prepare: Prepare) -> None:
        """An actor a core, or as many as the GPUs hold by what the first one takes.

        :raises TrainerError: one could not be started, or the cluster has no room for any.
        """
        room = self._cluster.has("CPU")
        wanted = min(placement.workers or room, placement.limit or room, room)
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
        running: dict[Any, tuple[_Actor, int, T]] = {}
        while waiting or running:
            for actor in self._actors:
                if waiting and actor.ready and actor.task is None:
                    number, task = waiting.popleft()
                    actor.task = actor.handle.attempt.remote(work, task)
                    running[actor.task] = actor, number, task
            starting = {actor.hello: actor for actor in self._actors if not actor.ready}
            if not running and not starting:
                break
            with marks.region("workers"):
                ready, _ = self._ray.wait([*running, *starting], num_returns=1, timeout=_START_S)
            if not ready:
                if running or self._ray.wait([actor.there for actor in starting.values()], num_returns=1, timeout=0)[0]:
                    continue
                self._last = Failure(f"no node of the cluster had room for a new one within {_START_S:.0f} s")
                break
            [reference] = ready
            if reference in starting:
                self._last = self._look_at_start(starting[reference])
                continue
            actor, number, task = running.pop(reference)
            actor.task = None
            result = self._result(reference)
            if result is not LOST:
                yield task, result
                continue
            self._replace(actor)
            deaths[number] += 1
            if deaths[number] < MAX_WORKER_DEATHS:
                waiting.appendleft((number, task))
                self._redone += 1
            else:
                yield task, Failure.death()
        for _, task in waiting:
            yield task, Failure.no_worker(self._last)

    def close(self) -> None:
        """End the actors, whatever they do, and leave the cluster; one of our own ends."""
        for actor in self._actors:
            self._ray.kill(actor.handle)
        self._actors = []
        self._cluster.leave()

    # ------------------------------------------------------------ actors

    def _made(self, prepare: Prepare) -> _Actor:
        handle = self._ray.remote(**self._options)(_Worker).remote(self._sharing)
        return _Actor(handle, handle.there.remote(), handle.hello.remote(prepare), prepare)

    def _there(self, actors: list[_Actor]) -> list[_Actor]:
        """Those that a node has room for: their first work may take as long as it does, waiting for a core may not.

        :raises TrainerError: none.
        """
        by_reference = {actor.there: actor for actor in actors}
        there, _ = self._ray.wait([*by_reference], num_returns=len(by_reference), timeout=_START_S)
        if not there:
            what = "a core and a share of a GPU" if "num_gpus" in self._options else "a core"
            raise TrainerError(
                f"engine ray: no node of the cluster had {what} free for a worker within {_START_S:.0f} s: "
                "wait until its other work is done, or name another cluster with --address"
            )
        return [by_reference[reference] for reference in there]

    def _first(self, actor: _Actor) -> MemoryUse | Failure:
        result = self._result(actor.hello)
        return Failure("an actor died while it started: killed, or out of memory") if result is LOST else result

    def _fit(self, placement: Placement, prepare: Prepare) -> int:
        """Actors that a GPU holds: one has it for itself first."""
        self._options["num_gpus"] = 1
        actor = self._made(prepare)
        try:
            memory_use = accepted(self._first(*self._there([actor])))
        finally:
            self._ray.kill(actor.handle)
        return max(1, floor(1 / placement.share(memory_use)))

    def _result(self, reference: Any) -> Any:
        """LOST: the actor died."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:  # before or after the task: what it takes or gives cannot be sent
            return Failure.of(error.cause or error)
        except errors.RayError:
            return LOST

    def _replace(self, actor: _Actor) -> None:
        """Another in its place, which is ready when a node has room for it."""
        self._ray.kill(actor.handle)
        new = self._made(actor.prepare)
        new.false_starts = actor.false_starts
        self._actors[self._actors.index(actor)] = new

    def _look_at_start(self, actor: _Actor) -> Failure | None:
        """Whether it is ready; what its first work failed by, if it did and the actor did not die of it."""
        result = self._result(actor.hello)
        if result is not LOST and not isinstance(result, Failure):
            actor.ready, actor.false_starts = True, 0
            return None
        actor.false_starts += 1
        if actor.false_starts < _MOST_FALSE_STARTS:
            self._replace(actor)
        else:
            self._actors.remove(actor)
            self._ray.kill(actor.handle)
        return result if isinstance(result, Failure) else None


@dataclass(slots=True, eq=False)
class _Actor:
    """One actor, as seen from here."""

    handle: Any
    there: Any
    """Done when a node has room for it."""
    hello: Any
    prepare: Prepare = field(repr=False)
    ready: bool = False
    task: Any = None
    false_starts: int = 0


def _share(a_gpu: int) -> float:
    """Of a GPU for each of so many actors: Ray counts ten-thousandths, and all of them must fit."""
    return 1.0 if a_gpu == 1 else floor(10_000 / a_gpu) / 10_000


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

    def hello(self, prepare: Prepare) -> MemoryUse | Failure:
        """Its first work."""
        try:
            return prepared(prepare, self._place)
        except TrainerError as error:
            return Failure.of(error)

    def attempt(self, work: Work[T, R], task: T) -> R | Failure:
        """A task."""
        return attempt(work, task, self._place)


def _here() -> WorkerSlot:
    ray = imported()
    node = ray.get_runtime_context().get_node_id()[:8]
    numbers = ray.get_gpu_ids()
    if not numbers:
        return WorkerSlot(CPU, f"{node}/{CPU}")
    return WorkerSlot(f"{CUDA}:0", f"{node}/{CUDA}:{numbers[0]}")  # Ray shows an actor its own GPU only


PLUGIN = EnginePlugin("ray", "a Ray cluster: the one at --address, or one of its own on this machine", Cluster)
