"""The interface of engines, which run the jobs of a sweep, and how they are found in `reference_trainer.ssm.engines`.

An engine takes a function that can be imported by its name, and tasks; it yields the function's result for each task,
in the order in which they end. If a task raises an exception or its worker dies, its result is a `Failure`.
"""

from __future__ import annotations

import importlib
import pkgutil
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol, Self, TypeVar

from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig
from reference_trainer.ssm.placement import MemoryUse, Placement, WorkerSlot

T = TypeVar("T")
R = TypeVar("R")

MAX_WORKER_DEATHS: Final = 2
"""A task fails after this many workers died with it: the first may have been killed because of another program."""
ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
"""Environment of a worker if there is one per core: more threads would compete for cores."""
_PACKAGE: Final = "reference_trainer.ssm.engines"


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

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """The failure of a task that raised an exception, as plain text because not every exception can be pickled."""
        message = " ".join(str(error).split())
        if isinstance(error, TrainerError):
            return cls(message, refused=True)
        kind = type(error).__name__
        return cls(f"{kind}: {message}" if message else kind, "".join(traceback.format_exception(error)))

    @classmethod
    def death(cls) -> Self:
        """The failure of a task whose workers died."""
        return cls(f"{MAX_WORKER_DEATHS} workers that ran it died: killed, or out of memory", died=True)

    @classmethod
    def no_worker(cls, last: Failure | None) -> Self:
        """The failure of a task for which no worker is left.

        :param last: why the last worker could not start; None: it died.
        """
        why = "each died before it received a task" if last is None else last.reason
        return cls(f"no worker could be started: {why}", died=True)


class Lost(Enum):
    """Stands for the result of a task whose worker died before or while doing it."""

    LOST = auto()


LOST: Final = Lost.LOST
Work = Callable[[T, WorkerSlot], R]
Learned = tuple[Any, ...]
Prepare = Callable[[WorkerSlot, Learned], MemoryUse]
"""The first work of a worker; it receives the `MemoryUse.learned` of earlier workers on its machine."""


class Engine(Protocol):
    """A set of workers that do tasks."""

    @property
    def workers(self) -> int:
        """Number of workers."""

    @property
    def device_names(self) -> tuple[str, ...]:
        """The device name of each worker; empty if the workers are not on this machine."""

    @property
    def redone(self) -> int:
        """How often a task was started again so far because its worker died."""

    def find_devices(self, device: str, config: PerformanceConfig, workers: int | None) -> Placement:
        """Find the devices that can be used.

        :param device: the user's name for it.
        :param workers: number of requested workers; None: as many as fit.
        :raises TrainerError: there is no device of that name, or none is free.
        """

    def start(self, placement: Placement, prepare: Prepare) -> None:
        """Start as many workers as fit, and have each do its first work.

        :raises TrainerError: no worker could be started.
        """

    def run(self, work: Work[T, R], tasks: Iterable[T]) -> Iterator[tuple[T, R | Failure]]:
        """Do all tasks; yield each with its result, in the order in which they end."""

    def close(self) -> None:
        """End all workers, at once even if a task is running."""


@dataclass(frozen=True, slots=True)
class EnginePlugin:
    """How an engine is registered."""

    name: str
    help: str
    open: Callable[[str | None], Engine]
    """Makes the engine; it receives the address of a cluster, or None."""


def attempt(work: Work[T, R], task: T, slot: WorkerSlot) -> R | Failure:
    """Do a task; every exception becomes a `Failure`."""
    try:
        return work(task, slot)
    except Exception as error:  # noqa: BLE001 - every exception is reported, and the other tasks continue
        return Failure.of(error)


def prepared(prepare: Prepare, slot: WorkerSlot, learned: Learned = ()) -> MemoryUse:
    """Do the first work of a worker in this process.

    :raises TrainerError: it failed.
    """
    return accepted(attempt(_prepare, (prepare, learned), slot))


def accepted(result: MemoryUse | Failure) -> MemoryUse:
    """Return the result of the first work of a worker.

    :raises TrainerError: it failed.
    """
    if isinstance(result, Failure):
        raise TrainerError(result.reason if result.refused else f"the workers cannot be used: {result.reason}")
    return result


def _prepare(first: tuple[Prepare, Learned], slot: WorkerSlot) -> MemoryUse:
    prepare, learned = first
    return prepare(slot, learned)


def engines() -> dict[str, EnginePlugin]:
    """All engines by name."""
    package: Any = importlib.import_module(_PACKAGE)
    names = (module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_"))
    result = [importlib.import_module(f"{_PACKAGE}.{name}").PLUGIN for name in names]
    return {plugin.name: plugin for plugin in result}


def open_engine(name: str, address: str | None = None) -> Engine:
    """Open the engine of that name without starting it.

    :raises TrainerError: there is no such engine, it is not installed, or it cannot be reached.
    """
    plugins = engines()
    if name not in plugins:
        raise TrainerError(f"unknown engine {name!r}: choose one of {', '.join(plugins)}")
    return plugins[name].open(address)
