"""Samples CPU, memory and context switches of the target's processes and threads, and of the machine, from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from profiler.core.procfs import (
    ENDED_STATES,
    ProcessStat,
    available_memory,
    cpu_times,
    process_tree,
    read_stat,
    read_status,
    thread_ids,
    thread_name,
    thread_times,
)
from profiler.core.samples import THREAD_NAME
from profiler.record.collector import Context, Sampler
from profiler.run.model import CollectorStatus
from profiler.run.tables import LEVELS

_RESCAN_S: Final = 0.5  # how late a new process may be noticed
_SLOW_EVERY: Final = 5  # at level light threads, context switches, peaks and the machine's memory: every 5th sample
_COST: Final = 0.02  # maximum share of a core; with many processes and threads samples become less frequent
_KIB: Final = 1024
Row = tuple[int, int, str, float]


class HostCollector:
    """A thread in the recorder reads the processes of the target, which itself does nothing for it."""

    name = "host"
    levels = LEVELS

    def available(self) -> str | None:
        return None

    def describe(self) -> Mapping[str, Any]:
        return {}

    def start(self, context: Context) -> None:
        reader = HostReader(context)
        self._sampler = Sampler(self.name, context.spec.sample_period, reader.take_if_due)

    def stop(self) -> CollectorStatus:
        return self._sampler.stop()


class HostReader:
    """Takes samples of all processes and the machine, and keeps the previous values for differences."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._cpu: dict[int, tuple[float, float]] = {}
        """The last reading of each process: its time (s), and the CPU time then (s)."""
        self._names_written: set[tuple[int, int]] = set()
        self._slow_every = _SLOW_EVERY if context.spec.level == "light" else 1
        self._count = 0
        self._due = 0.0
        self._machine = cpu_times()
        self._find_processes()

    def take_if_due(self) -> int:
        """Take a sample, unless the previous ones have used up their share of a core."""
        if time.monotonic() < self._due:
            return 0
        before = time.thread_time()
        count = self.take()
        self._due = time.monotonic() + (time.thread_time() - before) / _COST
        return count

    def take(self) -> int:
        """Read and write one sample; returns its number of records."""
        now = time.monotonic()
        slow = self._count % self._slow_every == 0
        self._count += 1
        if now - self._scanned_at >= _RESCAN_S:
            self._find_processes()
        rows: list[Row] = []
        for pid in self._pids:
            stat = read_stat(pid)
            if stat is not None and stat.state not in ENDED_STATES:
                rows += self._process_rows(pid, stat, now, slow)
        rows += self._machine_rows(slow)
        self._context.writer.samples(time.monotonic_ns(), rows)
        return len(rows)

    def _find_processes(self) -> None:
        """Find the target and its descendants; forget those that have ended: a long job may start very many."""
        self._scanned_at = time.monotonic()
        self._pids = process_tree(self._context.pid)
        self._cpu = {pid: times for pid, times in self._cpu.items() if pid in self._pids}
        self._names_written = {(pid, tid) for pid, tid in self._names_written if pid in self._pids}

    def _process_rows(self, pid: int, stat: ProcessStat, now: float, slow: bool) -> list[Row]:
        rows: list[Row] = [(pid, 0, "process.rss", stat.rss_bytes), (pid, 0, "process.cpu_s", stat.cpu_s)]
        read_at, used = self._cpu.get(pid, (now, 0.0))
        self._cpu[pid] = (now, stat.cpu_s)
        if now > read_at:
            rows.append((pid, 0, "process.cpu", (stat.cpu_s - used) / (now - read_at)))
        if not slow:
            return rows
        rows.append((pid, 0, "process.threads", stat.threads))
        status = read_status(pid)
        for field, name, unit in (
            ("voluntary_ctxt_switches", "process.ctx_voluntary", 1),
            ("nonvoluntary_ctxt_switches", "process.ctx_involuntary", 1),
            ("VmHWM", "process.peak_rss", _KIB),  # getrusage would include the time before exec
        ):
            if (number := status.get(field, "").partition(" ")[0]).isdecimal():
                rows.append((pid, 0, name, int(number) * unit))
        for tid, times in thread_times(pid, thread_ids(pid)).items():
            rows.append((pid, tid, "thread.cpu_s", times.cpu_ns / 1e9))
            if (pid, tid) not in self._names_written:
                self._names_written.add((pid, tid))
                rows.append((pid, tid, THREAD_NAME + thread_name(pid, tid), 1))
        return rows

    def _machine_rows(self, slow: bool) -> list[Row]:
        before, after = self._machine, cpu_times()
        self._machine = after
        rows: list[Row] = []
        if before and after and (elapsed := after.total - before.total) > 0:
            idle = (after.idle - before.idle) / elapsed
            rows.append((0, 0, "machine.cpu_util", min(1.0, max(0.0, 1 - idle))))
            rows.append((0, 0, "machine.steal", max(0, after.stolen - before.stolen) / elapsed))
        if slow:
            rows.append((0, 0, "machine.load", os.getloadavg()[0]))
            if (available := available_memory()) is not None:
                rows.append((0, 0, "machine.available", available))
        return rows


PLUGIN = HostCollector
