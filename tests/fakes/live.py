"""A program that does not run: what a live view would read of it, to be changed between readings; and a snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from profiler.core.live import MAIN, GpuUse, Snapshot, ThreadUse, Watched, WorkerUse
from profiler.core.procfs import CLOCK_TICKS, ProcessStat, ThreadTimes

Thread = tuple[ProcessStat, ThreadTimes]

WATCHED = Watched(10, "train")


def process(
    cpu: float, *, parent: int = 1, name: str = "python", started: float = 5.0, rss: int = 10_000
) -> ProcessStat:
    return ProcessStat(name, "S", parent, 0, cpu, 1, round(started * CLOCK_TICKS), rss, 0)


def thread(cpu: float, *, wait: float = 0.0, name: str = "python") -> Thread:
    return process(0.0, name=name), ThreadTimes(round(cpu * 1e9), round(wait * 1e9))


@dataclass
class FakeReader:
    """Answers with what it was given."""

    processes: dict[int, ProcessStat]
    threads_of: dict[int, dict[int, Thread]] = field(default_factory=dict)

    def tree(self, pid: int) -> dict[int, ProcessStat]:
        return self.processes

    def threads(self, pid: int) -> dict[int, Thread]:
        return self.threads_of.get(pid, {})

    def is_worker(self, pid: int, stat: ProcessStat) -> bool:
        return stat.name == "pt_data_worker"

    def gpus(self, pids: list[int]) -> tuple[tuple[GpuUse, ...], str]:
        return (), "no GPU here: no driver"

    def cores(self, pid: int) -> float:
        return 4.0

    def throttled(self, pid: int) -> float | None:
        return None

    def uptime(self) -> float:
        return 65.0


def gpu(utilization: float | None, **more: Any) -> GpuUse:
    figures = {"memory_used": 12e9, "memory_total": 141e9, "power": 120.0, "power_limit": 700.0, "throttle": ()}
    return GpuUse(0, "Fake GPU", utilization, **{**figures, **more})


def snapshot(
    *, cpu: float | None = 0.98, state: str = "R", delayed: float = 0.0, workers: tuple[float, ...] = (), **more: Any
) -> Snapshot:
    """A snapshot of a program whose main thread uses `cpu` of a core, and each of its workers so many cores."""
    values: dict[str, Any] = {
        "watched": WATCHED,
        "ran": 125.0,
        "cores": 8.0,
        "cpu": cpu,
        "rss": 2 * 10**9,
        "processes": 1 + len(workers),
        "workers": tuple(WorkerUse(20 + i, used, 10**8) for i, used in enumerate(workers)),
        "threads": (
            ThreadUse(10, 10, "python", state, cpu, MAIN, delayed),
            ThreadUse(10, 11, "pt_data_pin", "S", 0.01),
            *(ThreadUse(20 + i, 20 + i, "pt_data_worker", "R", used) for i, used in enumerate(workers)),
        ),
        "unknown": {"steps": "not started with `profiler run`", "gpus": "no GPU here: no driver"},
    }
    return Snapshot(**{**values, **more})
