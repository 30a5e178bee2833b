"""Engines run the jobs of a sweep: the interface, the loop that feeds workers, and how engines are found by name.

An engine takes a function that can be imported by its name, and tasks. It yields each task with the function's result,
in the order in which they end. If a task raises an exception or its workers die, its result is a `Failure`.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import traceback
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from profiler import marks
from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig
from reference_trainer.ssm.placement import MemoryUse, Placement, WorkerSlot, find_free_devices

T = TypeVar("T")
R = TypeVar("R")

MAX_WORKER_DEATHS: Final = 2
"""A task fails after this many workers died with it: the first may have been killed because of another program."""
MAX_FAILED_STARTS: Final = 3
"""A worker is given up after this many processes in a row that died or failed before their first task; each later
pass over tasks tries it once more."""
ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
"""Environment of a worker if there is one per core: more threads would compete for cores."""
_PACKAGE: Final = "reference_trainer.ssm.engines"
_DIED_EARLY: Final = "each died before it received a task"


@dataclass(frozen=True, slots=True)
class Failure:
    """A task that has no result."""

    reason: str
    """One line."""
    trace: str = ""
    died: bool = False
    """Every worker that ran it died."""
    refused: bool = False
    """The error is a TrainerError, whose text is meant for the user."""
    device: str = ""
    """Name of the device of its worker; empty if it is unknown, or if there was no worker."""

    @classmethod
    def of(cls, error: BaseException, device: str = "") -> Self:
        """The failure of a task that raised an exception, as plain text because not every exception can be pickled."""
        message = " ".join(str(error).split())
        if isinstance(error, TrainerError):
            return cls(message, refused=True, device=device)
        kind = type(error).__name__
        trace = "".join(traceback.format_exception(error))
        return cls(f"{kind}: {message}" if message else kind, trace, device=device)


Work = Callable[[T, WorkerSlot], R]
Prepare = Callable[[WorkerSlot], MemoryUse]
"""The first work of a worker."""


class Engine(ABC):
    """A set of workers that do tasks."""

    workers: int = 1
    """Number of workers that were started."""
    device_names: tuple[str, ...] = ()
    """The device name of each worker; empty if the workers are not on this machine."""
    redone: tuple[tuple[Any, str], ...] = ()
    """Tasks that were started again because their worker died, each with the name of that worker's device."""

    def find_devices(self, device: str, config: PerformanceConfig, workers: int | None) -> Placement:
        """Find the devices that can be used; by default those of this machine, as `find_free_devices` does."""
        return find_free_devices(device, config, workers)

    @abstractmethod
    def start(self, placement: Placement, prepare: Prepare) -> None:
        """Start as many workers as fit, and have each do its first work.

        :raises TrainerError: no worker could be started.
        """

    @abstractmethod
    def run(self, work: Work[T, R], tasks: Iterable[T]) -> Iterator[tuple[T, R | Failure]]:
        """Do all tasks; yield each with its result, in the order in which they end."""

    @abstractmethod
    def close(self) -> None:
        """End all workers, at once even if a task is running."""


class WorkerDiedError(Exception):
    """A worker died before or while it did something."""


class Worker(ABC):
    """A process or an actor, and the ones that replace it when it dies."""

    device_name = ""
    """The name of its device; empty if this machine does not know it."""
    first_work: Future[MemoryUse | Failure]
    """The result of the first work of the present process."""
    is_ready = False
    """The first work of the present process has succeeded."""
    failed_starts = 0
    """How many processes in a row died or failed before their first task."""

    @abstractmethod
    def open(self) -> None:
        """Start the process, or a new one in place of one that died, with its first work."""

    @abstractmethod
    def submit(self, work: Work[T, R], task: T) -> Future[R | Failure]:
        """Have the process do a task.

        :raises BrokenExecutor: the process has died while it was idle.
        """

    @abstractmethod
    def close(self, *, kill: bool) -> None:
        """End the process; `kill`: at once, whatever it is doing."""

    @abstractmethod
    def cause(self, error: BaseException) -> BaseException | None:
        """The exception behind the error of a future; None: the process died."""

    def result(self, future: Future[R | Failure]) -> R | Failure:
        """Wait for the result of a task or of the first work.

        :raises WorkerDiedError: the process died.
        """
        error = future.exception()
        if error is None:
            return future.result()
        cause = self.cause(error)
        if cause is None:
            raise WorkerDiedError
        return Failure.of(cause, self.device_name)  # the result, for example, cannot be pickled

    def memory_use(self) -> MemoryUse:
        """Wait until the first process is ready.

        :raises TrainerError: its first work failed, or it died.
        """
        try:
            result = accepted(self.result(self.first_work))
        except WorkerDiedError:
            where = f" on {self.device_name}" if self.device_name else ""
            raise TrainerError(
                f"a worker{where} died while it started: killed, or out of memory; try fewer --workers"
            ) from None
        self.is_ready = True
        return result


W = TypeVar("W", bound=Worker)


class WorkerEngine(Engine, Generic[W]):
    """An engine whose workers may die: their tasks are done again, and new processes replace them."""

    patience_s: float | None = None
    """Seconds to wait for a worker to start while none has a task; None: without a limit."""

    def __init__(self) -> None:
        self.pool: list[W] = []
        self.is_busy = False
        """Whether workers may be in the middle of something."""
        self._ended: SimpleQueue[Future[Any]] = SimpleQueue()
        self._starting: dict[Future[Any], W] = {}
        self._why = _DIED_EARLY
        """Why the last worker that failed to start did so."""

    @property
    def workers(self) -> int:  # type: ignore[override]
        """Number of workers that were started, including those that were given up."""
        return len(self.pool)

    def run(self, work: Work[T, R], tasks: Iterable[T]) -> Iterator[tuple[T, R | Failure]]:
        """Give each worker one task at a time: whichever is done first gets the next."""
        waiting = deque(enumerate(tasks))
        deaths: Counter[int] = Counter()
        running: dict[Future[Any], tuple[W, int, T]] = {}
        self._ended, self._starting = SimpleQueue(), {}
        idle = deque(worker for worker in self.pool if worker.is_ready)
        self.is_busy = True
        self._watch_others()
        while waiting or running:
            while waiting and idle:
                worker, (number, task) = idle.popleft(), waiting[0]
                try:
                    future: Future[Any] = worker.submit(work, task)
                except BrokenExecutor:
                    self._reopen(worker)
                    continue
                waiting.popleft()
                running[future] = worker, number, task
                future.add_done_callback(self._ended.put)
            ended = self._next(idle=not running)
            if ended is None:
                break
            if ended in self._starting:
                worker = self._starting.pop(ended)
                if self._has_started(worker):
                    idle.append(worker)
                continue
            worker, number, task = running.pop(ended)
            try:
                result = worker.result(ended)
                idle.append(worker)
            except WorkerDiedError:
                self._reopen(worker)
                deaths[number] += 1
                if deaths[number] < MAX_WORKER_DEATHS:
                    waiting.appendleft((number, task))
                    self.redone += ((task, worker.device_name),)
                    continue
                reason = f"{MAX_WORKER_DEATHS} workers that ran it died: killed, or out of memory"
                result = Failure(reason, died=True, device=worker.device_name)
            yield task, result
        for _, task in waiting:
            yield task, Failure(f"no worker could be started: {self._why}", died=True)
        self.is_busy = False

    def close(self) -> None:
        """End the workers; those in the middle of a task are killed."""
        for worker in self.pool:
            worker.close(kill=self.is_busy)
        self.pool = []

    def why_none_starts(self, workers: Iterable[W]) -> str:
        """Why it makes no sense to wait longer for the start of these workers; empty: one of them may start."""
        return ""

    def _next(self, *, idle: bool) -> Future[Any] | None:
        """Wait for the next task or start that ends; None: no worker has a task (`idle`), and none starts."""
        while not idle or self._starting:
            with marks.region("workers"), suppress(Empty):
                return self._ended.get(timeout=self.patience_s)
            if idle and (why := self.why_none_starts(self._starting.values())):
                self._why = why
                break
        return None

    def _watch_others(self) -> None:
        """Wait in `_next` for the workers that are not ready; those that were given up are tried once more."""
        for worker in self.pool:
            if worker.failed_starts >= MAX_FAILED_STARTS:  # in an earlier pass: there may be room again
                worker.failed_starts = MAX_FAILED_STARTS - 1
                worker.open()
            if not worker.is_ready:
                self._watch(worker)

    def _watch(self, worker: W) -> None:
        """Wait for the first work of a worker in `_next`."""
        self._starting[worker.first_work] = worker
        worker.first_work.add_done_callback(self._ended.put)

    def _reopen(self, worker: W) -> None:
        worker.is_ready = False
        worker.open()
        self._watch(worker)

    def _has_started(self, worker: W) -> bool:
        """Whether the first work of a worker succeeded; if not, it is tried again or given up."""
        try:
            result = worker.result(worker.first_work)
        except WorkerDiedError:
            self._why = _DIED_EARLY
        else:
            if not isinstance(result, Failure):
                worker.is_ready, worker.failed_starts = True, 0
                return True
            self._why = result.reason
        worker.failed_starts += 1
        if worker.failed_starts < MAX_FAILED_STARTS:
            self._reopen(worker)
        else:
            worker.close(kill=True)
        return False


def attempt(function: Callable[..., R], *arguments: Any, device: str = "") -> R | Failure:
    """Call a function in a worker; every exception becomes a `Failure` that names the device."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - every exception is reported, and the other tasks continue
        return Failure.of(error, device)


def accepted(result: MemoryUse | Failure) -> MemoryUse:
    """Return the result of the first work of a worker; an error of it is one for the user."""
    if isinstance(result, Failure):
        raise TrainerError(result.reason if result.refused else f"the workers cannot be used: {result.reason}")
    return result


def use_one_thread() -> None:
    """Let the libraries of this process, a worker, use one thread each."""
    os.environ.update(ONE_THREAD)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


class EnginePlugin(NamedTuple):
    """How an engine is registered."""

    name: str
    open: Callable[[str | None], Engine]
    """Makes the engine; it receives the address of a cluster, or None."""
    takes_address: bool = False
    """The engine can use a cluster that runs already."""


def open_engine(name: str, address: str | None = None) -> Engine:
    """Open the engine of that name without starting it.

    :raises TrainerError: there is no such engine, it takes no address, it is not installed, or it cannot be reached.
    """
    package: Any = importlib.import_module(_PACKAGE)
    names = [module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_")]
    if name not in names:
        raise TrainerError(f"unknown engine {name!r}: choose one of {', '.join(names)}")
    plugin: EnginePlugin = importlib.import_module(f"{_PACKAGE}.{name}").PLUGIN
    if address is not None and not plugin.takes_address:
        raise TrainerError(f"engine {name} has no --address: leave it out, or choose an engine that uses a cluster")
    return plugin.open(address)
