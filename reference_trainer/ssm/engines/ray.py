"""The engine that uses a Ray cluster, where one machine is too small: `pip install 'training-profiler[ray]'`.

A worker is an actor with one core and its share of a GPU. A task of Ray would not do: Ray gives its processes to
whichever task is next and shows it another GPU, while torch stays with the one that it began with. Actors that die,
alone or with their node, are replaced wherever there is room; meanwhile others do their tasks again.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from math import floor
from typing import Any, Final

from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig, refuse
from reference_trainer.ssm.engine import (
    EnginePlugin,
    Failure,
    Prepare,
    R,
    T,
    Work,
    Worker,
    WorkerEngine,
    attempt,
    use_one_thread,
)
from reference_trainer.ssm.placement import AUTO, CPU, CUDA, Device, MemoryUse, Placement, WorkerSlot, cores

_UNUSED: Final = dict.fromkeys(("max_load", "max_load_wait"), "Ray places work on its cluster by cores and GPUs")
_STORE: Final = 100 << 20
"""Bytes of the object store of a cluster that we start, close to Ray's minimum: results are small."""
_FRAME_BYTES: Final = 9
"""Length of the header of an HTTP/2 frame."""
_ANSWER_S: Final = 10.0


class Cluster(WorkerEngine["_Actor"]):
    """Workers that are actors of a Ray cluster."""

    patience_s = 120.0
    """Seconds after which a sweep begins with the actors that have started: other programs may use the cluster."""

    def __init__(self, address: str | None) -> None:
        super().__init__()
        self._ray = imported()
        self._address = address
        """None: a cluster of its own, on this machine."""
        self._joined = False

    def find_devices(self, device: str, config: PerformanceConfig, workers: int | None) -> Placement:
        if device not in (AUTO, CPU, CUDA):
            raise TrainerError(f"device {device}: a cluster chooses among its GPUs, name cuda, cpu or auto")
        refuse(config, _UNUSED)
        self._join(workers)
        gpus = self._count("GPU")
        if device == CUDA and not gpus:
            raise TrainerError("device cuda: no node of the cluster has a GPU")
        devices = [CPU]
        if device != CPU and gpus:
            devices = [f"{CUDA}:{number}" for number in range(min(gpus, config.num_devices or gpus))]
        return Placement(tuple(Device(name, None, None, None) for name in devices), config.max_memory, workers)

    def start(self, placement: Placement, prepare: Prepare) -> None:
        """Start one actor per core, or as many as the GPUs hold, judging by the memory of a first one."""
        room = self._count("CPU")
        wanted = min(placement.workers or room, placement.limit or room, room)
        sharing = 0
        if placement.kind == CUDA:
            gpus = len(placement.devices)
            sharing = max(1, -(-wanted // gpus))  # more would divide its memory among actors that have no core
            if not placement.workers:
                sharing = min(sharing, self._fit(placement, prepare))
            wanted = min(wanted, gpus * sharing)
        self.pool = [_Actor(self._ray, sharing, prepare) for _ in range(max(1, wanted))]
        starts = {actor.first_work: actor for actor in self._placed(self.pool)}
        done = wait(starts, self.patience_s).done or wait(starts, return_when=FIRST_COMPLETED).done
        for future in done:
            starts[future].memory_use()  # raises the error of a first work that failed

    def why_none_starts(self, workers: Iterable[_Actor]) -> str:
        if any(actor.placed.done() for actor in workers):
            return ""
        return f"no node of the cluster had room for a new one within {self.patience_s:.0f} s"

    def close(self) -> None:
        """End the actors and leave the cluster; a cluster that the sweep started ends."""
        super().close()
        if self._joined:
            self._joined = False
            self._ray.shutdown()

    def _join(self, workers: int | None) -> None:
        """Join the cluster, or start one with a core for each worker, unless that has been done."""
        if self._joined:
            return
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address is None:
            local = {"num_cpus": workers or cores(), "object_store_memory": _STORE, "_node_ip_address": "127.0.0.1"}
            options |= {"address": "local", "include_dashboard": False, **local}
        else:
            options["address"] = self._address
        try:
            _check_address(self._address or "")
            with _uninterrupted():
                self._ray.init(**options)
                self._joined = True
        except Exception as error:  # noqa: BLE001 - Ray raises many kinds; each is reported
            where = "engine ray" if self._address is None else f"--address {self._address}"
            message = f"{where}: no cluster could be reached: {' '.join(str(error).split())}"
            raise TrainerError(message) from None

    def _count(self, resource: str) -> int:
        return int(self._ray.cluster_resources().get(resource, 0))

    def _placed(self, actors: Sequence[_Actor]) -> list[_Actor]:
        """Wait for room on a node and return the actors that have it: their first work may take any time."""
        wait([actor.placed for actor in actors], self.patience_s)
        placed = [actor for actor in actors if actor.placed.done()]
        if not placed:
            what = "a core and a share of a GPU" if "num_gpus" in actors[0].options else "a core"
            raise TrainerError(
                f"engine ray: no node of the cluster had {what} free for a worker within {self.patience_s:.0f} s: "
                "wait until its other work is done, or name another cluster with --address"
            )
        return placed

    def _fit(self, placement: Placement, prepare: Prepare) -> int:
        """How many actors a GPU holds, judging by one that has it for itself."""
        actor = _Actor(self._ray, 1, prepare)
        try:
            [placed] = self._placed([actor])
            return max(1, floor(1 / placement.share(placed.memory_use())))
        finally:
            actor.close(kill=True)


class _Actor(Worker):
    """A worker that is an actor.

    :param sharing: number of actors that share its GPU; 0: it uses none.
    """

    def __init__(self, ray: Any, sharing: int, prepare: Prepare) -> None:
        self._ray, self._sharing, self._prepare = ray, sharing, prepare
        self._handle: Any = None
        self.options = {"num_cpus": 1.0} | ({"num_gpus": _share(sharing)} if sharing else {})
        """What Ray reserves for it."""
        self.open()

    def open(self) -> None:
        self.close(kill=True)
        self._handle = self._ray.remote(**self.options)(_Worker).remote(max(1, self._sharing))
        self.placed: Future[None] = self._handle.do_nothing.remote().future()
        """It is done when a node has room for the actor."""
        self.first_work = self._handle.do_first_work.remote(self._prepare).future()

    def submit(self, work: Work[T, R], task: T) -> Future[R | Failure]:
        future: Future[R | Failure] = self._handle.attempt.remote(work, task).future()
        return future

    def cause(self, error: BaseException) -> BaseException | None:
        errors: Any = self._ray.exceptions
        if isinstance(error, errors.RayTaskError):
            return error.cause or error
        return None if isinstance(error, errors.RayError) else error

    def close(self, *, kill: bool) -> None:
        if self._handle is not None:
            self._ray.kill(self._handle)
            self._handle = None


def _share(actors: int) -> float:
    """The share of a GPU of each actor: Ray counts ten-thousandths, and all of them must fit."""
    return 1.0 if actors == 1 else floor(10_000 / actors) / 10_000


class _Worker:
    """What runs in an actor."""

    def __init__(self, sharing: int) -> None:
        use_one_thread()
        ray = imported()
        node = ray.get_runtime_context().get_node_id()[:8]
        numbers = ray.get_gpu_ids()
        # Ray shows an actor its GPU only
        device, name = (f"{CUDA}:0", f"{CUDA}:{numbers[0]}") if numbers else (CPU, CPU)
        self._slot = WorkerSlot(device, f"{node}/{name}", sharing)

    def do_nothing(self) -> None:
        """Return as soon as the actor is placed."""

    def do_first_work(self, prepare: Prepare) -> MemoryUse | Failure:
        return attempt(prepare, self._slot)

    def attempt(self, work: Work[T, R], task: T) -> R | Failure:
        return attempt(work, task, self._slot, device=self._slot.name)


def imported() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise TrainerError(
            "engine ray: Ray is not installed: pip install ray (or the extra ray of this project)"
        ) from None


def _check_address(address: str) -> None:
    """Check that a gRPC server answers: Ray itself would wait for minutes if nothing or something else listens there.

    A gRPC server sends the SETTINGS of HTTP/2 (RFC 9113, 3.4 and 6.5).

    :raises OSError: it does not answer so, or not in time.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        return
    with socket.create_connection((host, int(port)), timeout=_ANSWER_S) as line:
        if os.environ.get("RAY_USE_TLS"):
            return
        line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        answer = b""
        while len(answer) < _FRAME_BYTES and (more := line.recv(_FRAME_BYTES - len(answer))):
            answer += more
    if len(answer) < _FRAME_BYTES or answer[3:5] != b"\4\0":
        raise OSError("what listens there is not Ray")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay the first Ctrl-C or SIGTERM until Ray has started: interrupted, Ray dies and leaves its processes behind.

    Ray installs a handler of SIGTERM meanwhile; at the end the earlier handlers are restored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals: list[int] = []
    usual: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in usual.items():
            signal.signal(number, handler)

    def delay(number: int, _: object) -> None:
        signals.append(number)
        restore()
        print("waiting until Ray has started; once more, and it ends at once", file=sys.stderr)

    for number in usual:
        signal.signal(number, delay)
    try:
        yield
    finally:
        restore()
        for number in signals:
            signal.raise_signal(number)


PLUGIN = EnginePlugin("ray", Cluster, takes_address=True)
