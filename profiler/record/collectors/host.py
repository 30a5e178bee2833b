"""Samples the machine and describes it: CPU and memory of processes, packages and settings."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from profiler import __version__
from profiler.core.facts import CHANGED, UNKNOWN_CHANGES
from profiler.core.git import read_git
from profiler.core.metrics import THREAD_NAME
from profiler.core.procfs import (
    anonymous_memory,
    blocked_in,
    cpu_times,
    peak_rss,
    process_tree,
    read_faults,
    read_stat,
    read_status,
    thread_ids,
    thread_name,
    thread_times,
)
from profiler.record import kernel
from profiler.record.collectors import Context, Sampler
from profiler.record.kernel import throttled_seconds
from profiler.run.model import CollectorStatus
from profiler.run.tables import LEVELS

_RESCAN_S: Final = 0.5  # how late a new process may be noticed
_SLOW_EVERY: Final = 5
"""Context switches, peaks, quotas and the machine's memory are read at every 5th sample, and at level light the clocks
of threads. A sample with these reads takes 0.7 ms, one without them 0.15 ms. The first sample of a process and the end
of the recording have them too, so that no peak of what still runs then is missed."""
_WAIT_PERIOD_S: Final = 0.02  # 50 samples a second of what each main thread is blocked in cost 0.1 to 0.4% of a core
_COST: Final = 0.02  # maximum share of a core; with many processes and threads samples become less frequent
_STATUS_FIELDS: Final = {
    "process.ctx_voluntary": "voluntary_ctxt_switches",
    "process.ctx_involuntary": "nonvoluntary_ctxt_switches",
}
Row = tuple[int, int, str, float]


class HostCollector:
    """A thread in the recorder reads the processes of the target, which itself does nothing for it."""

    name = "host"
    levels = LEVELS
    start_order = 1

    def available(self) -> str | None:
        try:
            import psutil  # noqa: F401
        except ImportError as error:
            return f"psutil cannot be imported: {error}"
        return None

    def describe(self) -> Mapping[str, Any]:
        return {}

    def start(self, context: Context) -> None:
        reader = HostReader(context)
        self._sampler = Sampler(self.name, context.spec.sample_period, reader.take_if_due, reader.take_last)
        detailed = context.spec.level != LEVELS[0]
        self._waits = Sampler(self.name, _WAIT_PERIOD_S, reader.take_waits_if_due) if detailed else None

    def stop(self) -> CollectorStatus:
        waits = self._waits.stop() if self._waits else None
        status = self._sampler.stop()
        if waits is None or status.state != "ok":
            return status
        cost = (status.cost_s or 0.0) + (waits.cost_s or 0.0)
        return replace(
            status, state=waits.state, reason=waits.reason, records=status.records + waits.records, cost_s=cost
        )


class HostReader:
    """Takes samples of all processes and the machine, and keeps the previous values for differences."""

    def __init__(self, context: Context) -> None:
        import psutil

        self._psutil = psutil
        self._context = context
        self._processes: list[int] = []
        self._scanned_at = 0.0
        self._cpu: dict[int, tuple[float, float]] = {}
        self._names_written: set[tuple[int, int]] = set()
        self._detailed = context.spec.level != LEVELS[0]
        self._count = 0
        self._due = self._waits_due = 0.0
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

    def take_waits_if_due(self) -> int:
        """Sample what the main thread of each process is blocked in, unless that has used up its share of a core."""
        if time.monotonic() < self._waits_due:
            return 0
        before = time.thread_time()
        count = 0
        for pid in self._processes:
            if (call := blocked_in(pid, pid)) is not None:
                self._context.writer.samples(time.monotonic_ns(), [(pid, pid, "thread.blocked_in", int(call))])
                count += 1
        self._waits_due = time.monotonic() + (time.thread_time() - before) / _COST
        return count

    def take(self) -> int:
        """Read and write one sample; returns its number of records."""
        now = time.monotonic()
        slow = self._count % _SLOW_EVERY == 0
        self._count += 1
        if now - self._scanned_at >= _RESCAN_S:
            self._find_processes()
        rows: list[Row] = []
        for pid in self._processes:
            rows += self._process(pid, now, slow or pid not in self._cpu)
            if slow or self._detailed:
                rows += self._threads(pid)
        rows += self._machine_rows(slow)
        if slow:
            rows += self._throttled()
        self._context.writer.samples(time.monotonic_ns(), rows)
        return len(rows)

    def take_last(self) -> int:
        """Read what only slow samples hold once more. Shares of a core over so short a time would be noise."""
        rows = [row for pid in self._processes for row in self._status(pid)] + self._throttled()
        if rows:
            self._context.writer.samples(time.monotonic_ns(), rows)
        return len(rows)

    def _find_processes(self) -> None:
        """Find the target and its descendants."""
        self._scanned_at = time.monotonic()
        self._processes = processes = process_tree(self._context.pid)
        # forget processes that have ended: a long job may start very many
        self._cpu = {pid: times for pid, times in self._cpu.items() if pid in processes}
        self._names_written = {(pid, tid) for pid, tid in self._names_written if pid in processes}

    def _process(self, pid: int, now: float, slow: bool) -> list[Row]:
        stat = read_stat(pid)
        if stat is None or not stat.rss_bytes:
            return []  # it has ended
        used = stat.cpu_s
        rows: list[Row] = [(pid, 0, "process.rss", stat.rss_bytes)]
        if (anonymous := anonymous_memory(pid)) is not None:
            rows.append((pid, 0, "process.anonymous", anonymous))
        if slow:
            rows.append((pid, 0, "process.threads", stat.threads))
            rows += self._status(pid)
            if self._detailed and (faults := read_faults(pid, pid)) is not None:
                rows += [
                    (pid, pid, "thread.minor_faults", faults.minor),
                    (pid, pid, "thread.system_s", faults.system_s),
                ]
        before = self._cpu.get(pid)
        self._cpu[pid] = (now, used)
        rows.append((pid, 0, "process.cpu_s", used))
        if before and now > before[0]:
            rows.append((pid, 0, "process.cpu", (used - before[1]) / (now - before[0])))
        return rows

    def _status(self, pid: int) -> list[Row]:
        """Return the context switches and the largest memory of a process; nothing of one that has ended."""
        rows: list[Row] = []
        for name, field in _STATUS_FIELDS.items():
            number = read_status(pid, field).partition(" ")[0]
            if number.isdecimal():
                rows.append((pid, 0, name, int(number)))
        peak = peak_rss(pid)
        if peak is not None:
            rows.append((pid, 0, "process.peak_rss", peak))
        return rows

    def _throttled(self) -> list[Row]:
        seconds = throttled_seconds(membership=Path(f"/proc/{self._context.pid}/cgroup"))
        return [] if seconds is None else [(self._context.pid, 0, "group.throttled_s", seconds)]

    def _threads(self, pid: int) -> list[Row]:
        rows: list[Row] = []
        for tid, times in thread_times(pid, thread_ids(pid)).items():
            rows.append((pid, tid, "thread.cpu_s", times.cpu_ns / 1e9))
            rows.append((pid, tid, "thread.wait_s", times.wait_ns / 1e9))
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
            rows.append((0, 0, "machine.steal", max(0.0, (after.stolen - before.stolen) / elapsed)))
            if self._is_preferred():
                low = (after.low_priority - before.low_priority) / elapsed
                rows.append((0, 0, "machine.low_priority", max(0.0, low)))
        if slow:
            rows.append((0, 0, "machine.load", os.getloadavg()[0]))
            rows.append((0, 0, "machine.available", self._psutil.virtual_memory().available))
        return rows

    def _is_preferred(self) -> bool:
        """Tell whether the target gets the cores of programs with a nice value above 0: it has none itself."""
        try:
            return os.getpriority(os.PRIO_PROCESS, self._context.pid) <= 0
        except OSError:  # it has ended
            return False


# ---------------------------------------------------------------- packages and settings

PACKAGES: Final = (
    "torch", "numpy", "scipy", "numba", "numba-cuda", "llvmlite", "sentencepiece", "triton", "nvidia-cudnn-cu12",
    "py-spy", "psutil", "nvidia-ml-py",
)  # fmt: skip
"""Distributions whose version may change a result."""
VARIABLES: Final = (
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_VISIBLE_DEVICES",
    "KMP_AFFINITY", "KMP_BLOCKTIME", "MALLOC_CONF", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MKL_NUM_THREADS",
    "NCCL_ALGO", "NCCL_PROTO",
    "NUMBA_DISABLE_JIT", "NUMBA_ENABLE_CUDASIM", "NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER", "OMP_NUM_THREADS",
    "OMP_PROC_BIND", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF", "TOKENIZERS_PARALLELISM", "TORCH_COMPILE_DISABLE", "WORLD_SIZE",
)  # fmt: skip
"""The only environment variables that are recorded: settings, never secrets."""
_GIT_TIMEOUT_S, _STATUS_TIMEOUT_S = 5.0, 1.0
"""Before the program starts. For its status, git may have to read every file of a large repository."""

_STATUS: Final = ("status", "--porcelain", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty")
"""For renames git would read the content of files, and within a submodule it would follow that one's configuration. A
submodule that has another commit checked out is a change all the same."""


class EnvironmentCollector:
    """Works before the target starts, so it costs the target nothing."""

    name = "environment"
    levels = LEVELS
    start_order = 3

    def available(self) -> str | None:
        return None

    def describe(self) -> Mapping[str, Any]:
        begin = time.thread_time()
        fields = {"host": host_facts(), "versions": versions(), "git_commit": git_commit(Path.cwd())}
        self._cost = time.thread_time() - begin
        return fields

    def start(self, context: Context) -> None:
        """Everything was recorded before."""

    def stop(self) -> CollectorStatus:
        return CollectorStatus(self.name, "ok", records=1, cost_s=self._cost)


def host_facts() -> dict[str, Any]:
    """Return the machine, without its name. `cores` are those that this process may use; `cpu_quota` is how many cores
    its control groups allow, and `memory_limit` how many bytes of memory."""
    return {
        "cpu": _cpu_model() or platform.processor() or platform.machine(),
        "cores": kernel.cores(),
        "cpu_quota": kernel.cpu_limit(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "memory_limit": kernel.memory_limit(),
        "os": _os_name(),
        "kernel": platform.release(),
        "governor": kernel.governor() or None,
        "versions_of": "the recorder's Python; the target may have another",
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def versions() -> dict[str, str]:
    """Versions of the recorder's interpreter and packages, without importing them."""
    versions = {"python": platform.python_version(), "profiler": __version__}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def git_commit(directory: Path) -> str | None:
    """Return the commit checked out in `directory`; None where there is none.

    `CHANGED` follows it where tracked files differ from it, `UNKNOWN_CHANGES` where git did not tell in time.
    """
    head = read_git(directory, ["rev-parse", "HEAD"], _GIT_TIMEOUT_S)
    if not head:
        return None
    changed = read_git(directory, _STATUS, _STATUS_TIMEOUT_S)
    return head + (UNKNOWN_CHANGES if changed is None else CHANGED * bool(changed))


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _cpu_model() -> str:
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    return ""


PLUGINS = (HostCollector, EnvironmentCollector)
