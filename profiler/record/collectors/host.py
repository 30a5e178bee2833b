"""Samples CPU, memory and context switches of the target's processes and threads, and of the machine, from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from profiler.core.procfs import (
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

_TREE_S: Final = 0.5
"""How late a new process may be noticed."""
_SLOW_EVERY: Final = 5
"""At level light threads, context switches, peaks and the machine's memory are read with every 5th sample."""
_COST: Final = 0.02
"""Share of a core: with many processes and threads samples come less often instead."""
_STATUS_FIELDS: Final = (
    ("process.ctx_voluntary", "voluntary_ctxt_switches", 1),
    ("process.ctx_involuntary", "nonvoluntary_ctxt_switches", 1),
    ("process.threads", "Threads", 1),
    ("process.peak_rss", "VmHWM", 1024),  # getrusage would include the time before exec
)
"""Name of the sample, field of /proc/PID/status, and the factor to its unit."""
Row = tuple[int, int, str, float]


class HostCollector:
    """A thread in the recorder that reads /proc; the target itself does nothing for it."""

    name = "host"
    levels = LEVELS

    def available(self) -> str | None:
        return None if read_stat(os.getpid()) else "this system has no /proc as Linux has it"

    def describe(self) -> Mapping[str, Any]:
        return {}

    def start(self, context: Context) -> None:
        self._sampler = Sampler(self.name, context.spec.sample_period, HostReader(context).take_if_due)

    def stop(self) -> CollectorStatus:
        return self._sampler.stop()


class HostReader:
    """Takes samples of all processes of a target and of the machine, and keeps what differences need."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pids: list[int] = []
        self._pids_at = float("-inf")
        self._stats: dict[int, tuple[float, ProcessStat]] = {}
        self._named: set[tuple[int, int]] = set()
        self._slow_every = _SLOW_EVERY if context.spec.level == "light" else 1
        self._count = 0
        self._due = 0.0
        self._machine = cpu_times()

    def take_if_due(self) -> int:
        """Take a sample, unless the ones before have used up their share of a core."""
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
        if now - self._pids_at >= _TREE_S:
            self._find_processes(now)
        rows: list[Row] = []
        for pid in self._pids:
            stat = read_stat(pid)
            if stat is not None and stat.rss_bytes:  # without memory it has ended, and only its exit code is left
                rows += self._process_rows(pid, stat, now)
                if slow:
                    rows += self._slow_rows(pid)
        rows += self._machine_rows(slow)
        self._context.writer.samples(time.monotonic_ns(), rows)
        return len(rows)

    def _find_processes(self, now: float) -> None:
        self._pids_at = now
        self._pids = process_tree(self._context.pid)
        members = set(self._pids)
        # what is kept of processes that have ended goes: a job of hours may start them without end
        self._stats = {pid: reading for pid, reading in self._stats.items() if pid in members}
        self._named = {(pid, tid) for pid, tid in self._named if pid in members}

    def _process_rows(self, pid: int, stat: ProcessStat, now: float) -> list[Row]:
        rows: list[Row] = [(pid, 0, "process.rss", stat.rss_bytes), (pid, 0, "process.cpu_s", stat.cpu_s)]
        before, early = self._stats.get(pid, (now, stat))
        self._stats[pid] = (now, stat)
        if now > before and early.start_ticks == stat.start_ticks:
            rows.append((pid, 0, "process.cpu", (stat.cpu_s - early.cpu_s) / (now - before)))
        return rows

    def _slow_rows(self, pid: int) -> list[Row]:
        status = read_status(pid)
        rows: list[Row] = []
        for name, field, factor in _STATUS_FIELDS:
            number = status.get(field, "").partition(" ")[0]
            if number.isdecimal():
                rows.append((pid, 0, name, int(number) * factor))
        for tid, times in thread_times(pid, thread_ids(pid)).items():
            rows.append((pid, tid, "thread.cpu_s", times.cpu_ns / 1e9))
            if (pid, tid) not in self._named:
                self._named.add((pid, tid))
                rows.append((pid, tid, THREAD_NAME + thread_name(pid, tid), 1))
        return rows

    def _machine_rows(self, slow: bool) -> list[Row]:
        before, after = self._machine, cpu_times()
        self._machine = after
        rows: list[Row] = []
        if before and after and (total := after.total - before.total) > 0:
            busy = 1 - (after.idle - before.idle) / total
            rows.append((0, 0, "machine.cpu_util", min(1.0, max(0.0, busy))))
            rows.append((0, 0, "machine.steal", max(0.0, (after.stolen - before.stolen) / total)))
        if slow:
            rows.append((0, 0, "machine.load", os.getloadavg()[0]))
            if (available := available_memory()) is not None:
                rows.append((0, 0, "machine.available", available))
        return rows


PLUGIN = HostCollector
