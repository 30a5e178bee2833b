"""Defines one moment of a running program as plain values. `record.live` reads them.

Shares are of 1 (a thread's CPU: of one core), times are seconds, sizes bytes. What is None was not measured;
`Snapshot.unknown` has the reasons by the name of the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from profiler.run.model import StepDefinition

MAIN: Final = "main"
TRAINING: Final = "training"
"""The thread that closes the steps."""


@dataclass(frozen=True, slots=True)
class ThreadUse:
    """A thread over the last seconds."""

    pid: int
    tid: int
    name: str
    """The operating system's name of it."""
    state: str
    """R running, S sleeping, D waiting for a disk, ..., at the moment of reading."""
    cpu: float | None
    """Share of one core; None at the first reading."""
    role: str = ""
    delayed: float | None = None
    """Share of the time in which it could have run and no core was free."""


@dataclass(frozen=True, slots=True)
class WorkerUse:
    """A process that the program forked or spawned of itself, mostly a loader's worker, over the last seconds."""

    pid: int
    cpu: float | None
    """Cores."""
    rss: int


@dataclass(frozen=True, slots=True)
class GpuUse:
    """A GPU as NVML sees it. Its utilization and memory are of all programs on it."""

    index: int
    name: str
    utilization: float | None
    memory_used: float | None
    memory_total: float | None
    power: float | None
    """Watts."""
    power_limit: float | None
    throttle: tuple[str, ...] | None

    def figures(self) -> dict[str, object]:
        """Return the values that the driver may refuse to give, by their names."""
        return {
            "utilisation": self.utilization,
            "memory": self.memory_used,
            "power": self.power,
            "throttling": self.throttle,
        }


@dataclass(frozen=True, slots=True)
class StepUse:
    """Steps of the last seconds."""

    step: StepDefinition
    """The definition of a step."""
    window: float
    step_time: float | None
    """Mean time from the first to the last step seen; None: fewer than two."""
    since_last: float
    tokens_per_s: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    """The recorded share of those steps' time that their thread spent in data, checkpoint, ..."""
    pid: int = 0
    tid: int = 0
    """The process and the thread that closed the last step."""
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class Watched:
    """The program that is watched."""

    pid: int
    program: str
    run: str = ""
    """Its run directory; empty: nobody records it."""
    level: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A program at one moment, with rates over the last seconds."""

    watched: Watched
    ran: float
    """Seconds since the program's start."""
    cores: float
    """Cores that the program may use."""
    cpu: float | None
    """Cores, of the whole tree; None at the first reading."""
    rss: int
    """Sum over the tree: memory that processes share counts in each of them."""
    processes: int
    workers: tuple[WorkerUse, ...]
    threads: tuple[ThreadUse, ...]
    """Busiest first."""
    gpus: tuple[GpuUse, ...] = ()
    steps: StepUse | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)
    throttled: float | None = None
    """Time that CPU quotas of its groups cost it, summed over cores and divided by the time; None: no quota."""

    @property
    def training(self) -> ThreadUse | None:
        """The thread that closes the steps; without one, the busiest main thread of a process that is no worker."""
        by_role = {thread.role: thread for thread in reversed(self.threads)}  # the busiest of each role remains
        return by_role.get(TRAINING) or by_role.get(MAIN)
