"""What runs the jobs of a sweep: a small interface, and the engines that are found in `reference_trainer.ssm.engines`.

An engine takes a function that can be imported by its name, and tasks; it gives back what the function made of each,
in the order in which they end. What a task raises, and a worker that dies with it, are results too: a `Failure`.
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

MOST_DEATHS: Final = 2
"""Workers that a task may take with it: the first may have been killed for what another program did."""
ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
"""Environment of a worker where there are as many as cores: threads of their own would take them from each other."""
_PACKAGE: Final = "reference_trainer.ssm.engines"


@dataclass(frozen=True, slots=True)
class Failure:
    """A task that has no result."""

    reason: str
    """One line."""
    trace: str = ""
    died: bool = False
    """It took its workers with it."""
    refused: bool = False
    """It was refused in words for the user."""

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """What was raised; plain text, since not every error survives the way between processes."""
        message = " ".join(str(error).split())
        if isinstance(error, TrainerError):
            return cls(message, refused=True)
        kind = type(error).__name__
        return cls(f"{kind}: {message}" if message else kind, "".join(traceback.format_exception(error)))

    @classmethod
    def death(cls) -> Self:
        """The worker died."""
        return cls(f"{MOST_DEATHS} workers that had it died: killed, or out of memory", died=True)

    @classmethod
    def no_worker(cls, last: Failure | None) -> Self:
        """None is left to do it.

        :param last: why the last one could not; None: it died.
        """
        why = "each died before it had a task" if last is None else last.reason
        return cls(f"no worker could be started: {why}", died=True)


class Lost(Enum):
    """What stands for the result of a task whose worker died, or never came as far as to begin it."""

    LOST = auto()


LOST: Final = Lost.LOST
Work = Callable[[T, WorkerSlot], R]
Learned = tuple[Any, ...]
Prepare = Callable[[WorkerSlot, Learned], MemoryUse]
"""The first work of a worker; it is given the `Taken.learned` of workers of the same machine that were before it."""


class Engine(Protocol):
    """Workers."""

    @property
    def workers(self) -> int:
        """How many there are."""

    @property
    def device_names(self) -> tuple[str, ...]:
        """Of each worker the device by name; empty where they are not of this machine."""

    @property
    def redone(self) -> int:
        """How often a task was begun again so far, because the worker that had it died."""

    def find_devices(self, device: str, config: PerformanceConfig, workers: int | None) -> Placement:
        """What is there to work on.

        :param device: as the user names it.
        :param workers: that are asked for; None: as many as there is place for.
        :raises TrainerError: nothing by that name, or nothing that is free.
        """

    def start(self, placement: Placement, prepare: Prepare) -> None:
        """Start as many as there is place for, and have each do its first work.

        :raises TrainerError: none could be started.
        """

    def run(self, work: Work[T, R], tasks: Iterable[T]) -> Iterator[tuple[T, R | Failure]]:
        """Do all tasks; each with its result, in the order in which they end."""

    def close(self) -> None:
        """End all workers, at once where they are in the middle of something."""


@dataclass(frozen=True, slots=True)
class EnginePlugin:
    """One kind."""

    name: str
    help: str
    open: Callable[[str | None], Engine]
    """Takes the address of a cluster."""


def attempt(work: Work[T, R], task: T, slot: WorkerSlot) -> R | Failure:
    """Do a task: the edge of its process."""
    try:
        return work(task, slot)
    except Exception as error:  # noqa: BLE001 - whatever it is: it is reported, and the other tasks go on
        return Failure.of(error)


def prepared(prepare: Prepare, slot: WorkerSlot, learned: Learned = ()) -> MemoryUse:
    """The first work of a worker in this process.

    :raises TrainerError: it failed.
    """
    return accepted(attempt(_prepare, (prepare, learned), slot))


def accepted(result: MemoryUse | Failure) -> MemoryUse:
    """What the first work of a worker gave.

    :raises TrainerError: it failed.
    """
    if isinstance(result, Failure):
        raise TrainerError(result.reason if result.refused else f"the workers cannot be used: {result.reason}")
    return result


def _prepare(first: tuple[Prepare, Learned], slot: WorkerSlot) -> MemoryUse:
    prepare, learned = first
    return prepare(slot, learned)


def engines() -> dict[str, EnginePlugin]:
    """All of them by name."""
    package: Any = importlib.import_module(_PACKAGE)
    names = (module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_"))
    result = [importlib.import_module(f"{_PACKAGE}.{name}").PLUGIN for name in names]
    return {plugin.name: plugin for plugin in result}


def open_engine(name: str, address: str | None = None) -> Engine:
    """The engine of that name, not started yet.

    :raises TrainerError: there is none, it is not installed, or cannot be reached.
    """
    plugins = engines()
    if name not in plugins:
        raise TrainerError(f"unknown engine {name!r}: choose one of {', '.join(plugins)}")
    return plugins[name].open(address)
