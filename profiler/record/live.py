"""Reads a running program from outside, one snapshot after the other: processes, threads, memory, GPUs, steps.

Needs nothing of the program itself and no permission beyond its owner's. CPU needs two readings: the first snapshot
has none.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from profiler.core.live import MAIN, TRAINING, WORKER, GpuUse, ProcessUse, Snapshot, StepUse, ThreadUse, Watched
from profiler.core.procfs import (
    ENDED_STATES,
    is_python,
    process_tree,
    read_arguments,
    read_stat,
    thread_ids,
    thread_times,
    uptime,
)
from profiler.record import limits
from profiler.record.live_steps import StepRate

_MOST_THREADS: Final = 1024
"""Read of one process: about 20 µs each."""
_LOADER: Final = "pt_data_worker"
"""What torch (2.6 and later) names the main thread of a loader's worker."""
NOT_OURS: Final = "not recorded by us"


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """What /proc says of a process; CPU in s so far."""

    pid: int
    parent: int
    name: str
    state: str
    cpu: float
    rss: int
    threads: int
    started: float
    """Seconds after boot."""


@dataclass(frozen=True, slots=True)
class ThreadRow:
    tid: int
    name: str
    state: str
    cpu: float
    delayed: float = 0.0
    """Seconds so far in which it waited for a core."""


class Reader(Protocol):
    """Where a live view gets its readings."""

    def tree(self, pid: int) -> list[ProcessRow]:
        """`pid` first, then its descendants; empty when it has ended."""

    def threads(self, pid: int) -> list[ThreadRow]:
        """Threads of one process."""

    def is_worker(self, row: ProcessRow, parent: ProcessRow) -> bool:
        """Whether `row` was forked or spawned by the Python program `parent` to do part of its work."""

    def gpus(self, pids: list[int]) -> tuple[tuple[GpuUse, ...], str]:
        """The GPUs that these processes use, and a note."""

    def cores(self, pid: int) -> float:
        """That `pid` may use."""

    def uptime(self) -> float:
        """Seconds since boot."""


class Live:
    """Takes snapshots of one program.

    :param clock: ns, monotonic, the clock of the run's tables.
    """

    def __init__(
        self,
        watched: Watched,
        reader: Reader,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
        steps: StepRate | None = None,
    ) -> None:
        self._watched = watched
        self._reader = reader
        self._clock = clock
        self._steps = steps if steps or not watched.run else StepRate(Path(watched.run))
        self._at: int | None = None
        self._started: float | None = None
        self._processes: dict[int, float] = {}
        self._threads: dict[tuple[int, int], ThreadRow] = {}

    def snapshot(self) -> Snapshot | None:
        """Now; None when the program has ended."""
        rows = self._reader.tree(self._watched.pid)
        if not rows or self._started not in {None, rows[0].started}:  # the number may be another process's by now
            return None
        self._started = rows[0].started
        now, before = self._clock(), self._at
        self._at = now
        interval = (now - before) / 1e9 if before is not None and now > before else None
        unknown = {} if interval else {"cpu": "needs two readings"}
        steps, why = self._steps.read(now) if self._steps else (None, NOT_OURS)
        if why:
            unknown["steps"] = why
        threads = self._thread_uses(rows, interval, steps)
        processes = self._process_uses(rows, interval, threads, steps.pid if steps else 0)
        gpus, note = self._reader.gpus([row.pid for row in rows])
        if note:
            unknown["gpus"] = note
        used = [process.cpu for process in processes if process.cpu is not None]
        return Snapshot(
            watched=self._watched,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            ran=max(0.0, self._reader.uptime() - rows[0].started),
            interval=interval,
            cores=self._reader.cores(self._watched.pid),
            cpu=sum(used) if interval else None,
            rss=sum(row.rss for row in rows),
            processes=processes,
            threads=_with_main(threads, processes),
            gpus=gpus,
            steps=steps,
            unknown=unknown,
        )

    def _thread_uses(
        self, rows: list[ProcessRow], interval: float | None, steps: StepUse | None
    ) -> tuple[ThreadUse, ...]:
        found, clocks = [], {}
        for process in rows:
            for row in self._reader.threads(process.pid):
                key = process.pid, row.tid
                clocks[key] = row
                # what was not there before began within the interval: all that it used was in it
                early = self._threads.get(key) or ThreadRow(row.tid, row.name, row.state, 0.0)
                cpu = None if interval is None else max(0.0, row.cpu - early.cpu) / interval
                delayed = None if interval is None else max(0.0, row.delayed - early.delayed) / interval
                role = TRAINING if steps is not None and key == (steps.pid, steps.tid) else ""
                found.append(ThreadUse(process.pid, row.tid, row.name, row.state, cpu, role, delayed))
        self._threads = clocks
        return tuple(sorted(found, key=lambda use: (-(use.cpu or 0.0), use.pid, use.tid)))

    def _process_uses(
        self, rows: list[ProcessRow], interval: float | None, threads: tuple[ThreadUse, ...], stepping: int
    ) -> tuple[ProcessUse, ...]:
        """A process's own clock has what its ended threads used, in ticks of 10 ms; those of its threads are finer."""
        by_pid, found = {row.pid: row for row in rows}, []
        for row in rows:
            cpu = None
            if interval is not None:
                fine = sum(thread.cpu or 0.0 for thread in threads if thread.pid == row.pid)
                cpu = max((row.cpu - self._processes.get(row.pid, 0.0)) / interval, fine)
            parent = by_pid.get(row.parent)
            worker = parent is not None and row.pid != stepping and self._reader.is_worker(row, parent)
            found.append(
                ProcessUse(
                    row.pid, row.parent, row.name, row.state, cpu, row.rss, row.threads, WORKER if worker else ""
                )
            )
        self._processes = {row.pid: row.cpu for row in rows}
        return tuple(found)


def _with_main(threads: tuple[ThreadUse, ...], processes: tuple[ProcessUse, ...]) -> tuple[ThreadUse, ...]:
    """The main threads of all processes but workers are named so."""
    workers = {process.pid for process in processes if process.role == WORKER}
    return tuple(
        dataclasses.replace(use, role=MAIN) if use.pid == use.tid and use.pid not in workers and not use.role else use
        for use in threads
    )


class ProcReader:
    """Reads /proc, and NVML where there is one."""

    def __init__(self) -> None:
        from profiler.record.collectors.gpu import GpuReader

        self._gpus = GpuReader()

    def tree(self, pid: int) -> list[ProcessRow]:
        rows = [
            ProcessRow(
                one, stat.parent, stat.name, stat.state, stat.cpu_s, stat.rss_bytes, stat.threads, stat.started_s
            )
            for one in process_tree(pid)
            if (stat := read_stat(one)) and stat.state not in ENDED_STATES
        ]
        return rows if rows and rows[0].pid == pid else []

    def threads(self, pid: int) -> list[ThreadRow]:
        rows = []
        for tid, times in thread_times(pid, thread_ids(pid)[:_MOST_THREADS]).items():
            if stat := read_stat(pid, tid):
                rows.append(ThreadRow(tid, stat.name, stat.state, times.cpu_ns / 1e9, times.wait_ns / 1e9))
        return rows

    def is_worker(self, row: ProcessRow, parent: ProcessRow) -> bool:
        if row.name == _LOADER:
            return True
        arguments = read_arguments(row.pid)
        return (arguments == read_arguments(parent.pid) and is_python(row.pid)) or "--multiprocessing-fork" in arguments

    def gpus(self, pids: list[int]) -> tuple[tuple[GpuUse, ...], str]:
        return self._gpus.read(pids, uses_cuda=not self._gpus.error and any(map(_opens_driver, pids)))

    def cores(self, pid: int) -> float:
        return min(float(limits.cores(pid)), limits.cpu_limit() or float("inf"))

    def uptime(self) -> float:
        return uptime()


def _opens_driver(pid: int) -> bool:
    with suppress(OSError):
        return any(entry.readlink().name.startswith("nvidia") for entry in Path(f"/proc/{pid}/fd").iterdir())
    return False
