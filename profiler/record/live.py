"""Looks at a running program from outside: finds it, and takes one snapshot of it after the other.

Needs nothing of the program itself and no permission beyond its owner's.
"""

from __future__ import annotations

import shlex
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from profiler.core.errors import ProfilerError
from profiler.core.facts import program_name
from profiler.core.live import MAIN, TRAINING, GpuUse, Snapshot, StepUse, ThreadUse, Watched, WorkerUse
from profiler.core.procfs import (
    ENDED_STATES,
    PROC,
    Folder,
    ProcessStat,
    ThreadTimes,
    is_python,
    pids,
    process_tree,
    read_arguments,
    read_environment,
    read_stat,
    thread_ids,
    thread_times,
    uptime,
)
from profiler.core.terminal import called_as
from profiler.record import kernel
from profiler.record.live_steps import StepRate
from profiler.run import tables
from profiler.run.model import RunInfo
from profiler.run.store import read_manifest

SPAN_S: Final = 5.0
"""Seconds that rates are means of, so that what limits the program does not change with every reading."""
_MAX_THREADS: Final = 1024
"""Threads that are read of one process: each takes about 20 µs."""
_LOADER: Final = "pt_data_worker"
"""Name that torch (2.6 and later) gives the main thread of a loader's worker."""
NOT_OURS: Final = "not started with `profiler run`"
_CLOSING_S: Final = 3.0
"""Time that the recorder has to close the run after the program has ended."""


# ---------------------------------------------------------------- which program


def find_watched(target: str | None, *, proc: Folder = PROC) -> Watched:
    """Find the program that `target` names: digits are a PID, None the newest run being recorded, anything else a run.

    :raises ProfilerError: no such process, not a run, a run that has ended, or nothing is being recorded.
    """
    if target is None:
        return _newest_run(proc)
    if target.isdecimal() and not Path(target).is_dir():
        return _process(int(target), proc)
    path = Path(target).absolute()
    info = read_manifest(path)
    if info.state != "running":
        raise ProfilerError(f"the run {target} is over ({info.state}): {called_as()} diagnose {shlex.quote(target)}")
    pid = _root_process(path, proc)
    if pid is None:
        raise ProfilerError(f"no process of the run {target} is there: it or its recorder was killed")
    return _program_of_run(path, info, pid)


def _process(pid: int, proc: Folder) -> Watched:
    if not Path(proc, str(pid)).exists():
        raise ProfilerError(f"there is no process {pid}")
    for member in process_tree(pid, proc):
        run = run_directory(member, proc)
        if run is not None and (info := _running(run)):
            return Watched(pid, program_name(info.argv), str(run), info.level)
    argv = read_arguments(pid, proc)
    return Watched(pid, program_name(argv) if argv else f"process {pid}")


def _newest_run(proc: Folder) -> Watched:
    """Find the newest run below the working directory into which some process is recorded, else the newest of all."""
    runs = {run for pid in pids(proc) if (run := run_directory(pid, proc))}
    running = [(info, run) for run in runs if (info := _running(run))]
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        here = Path("/")
    for info, run in sorted(running, key=lambda entry: (not entry[1].resolve().is_relative_to(here), -entry[0].begin)):
        pid = _root_process(run, proc)
        if pid is not None:
            return _program_of_run(run, info, pid)
    raise ProfilerError(
        "nothing is being recorded: give the PID of a program or the directory of a run, "
        f"or record one: {called_as()} run -- python train.py"
    )


def _running(run: Path) -> RunInfo | None:
    with suppress(ProfilerError):
        info = read_manifest(run)
        return info if info.state == "running" else None
    return None


def _program_of_run(run: Path, info: RunInfo, pid: int) -> Watched:
    return Watched(pid, info.label or program_name(info.argv), str(run), info.level)


def _root_process(run: Path, proc: Folder) -> int | None:
    """Find the process recorded into `run` whose parent is not; of several, the one with most processes."""
    members = {pid for pid in pids(proc) if run_directory(pid, proc) == run}
    stats = {pid: read_stat(pid, proc=proc) for pid in members}
    roots = [pid for pid, stat in stats.items() if stat is None or stat.parent not in members]
    return min(roots, key=lambda pid: (-len(members.intersection(process_tree(pid, proc))), pid), default=None)


def run_directory(pid: int, proc: Folder = PROC) -> Path | None:
    """Return the run directory into which `pid` records; None: there is none, or its environment cannot be read."""
    run = read_environment(pid, proc).get(tables.ENV_RUN)
    return Path(run) if run is not None else None


# ---------------------------------------------------------------- readings


class SystemReader:
    """Reads /proc and NVML."""

    def __init__(self) -> None:
        from profiler.record.collectors.gpu import GpuReader

        self._gpus = GpuReader()

    def tree(self, pid: int) -> dict[int, ProcessStat]:
        """Return `pid` first, then the processes below it; nothing when it has ended."""
        stats = {member: read_stat(member) for member in process_tree(pid)}
        alive = {member: stat for member, stat in stats.items() if stat and stat.state not in ENDED_STATES}
        return alive if pid in alive else {}

    def threads(self, pid: int) -> dict[int, tuple[ProcessStat, ThreadTimes]]:
        """Return the threads of one process."""
        times = thread_times(pid, thread_ids(pid)[:_MAX_THREADS])
        return {tid: (stat, used) for tid, used in times.items() if (stat := read_stat(pid, tid))}

    def is_worker(self, pid: int, stat: ProcessStat) -> bool:
        """Tell whether `pid` was forked or spawned by the Python program that is its parent."""
        if stat.name == _LOADER:
            return True
        arguments = read_arguments(pid)
        same = arguments == read_arguments(stat.parent) and is_python(pid)
        return same or "--multiprocessing-fork" in arguments

    def gpus(self, pids: list[int]) -> tuple[tuple[GpuUse, ...], str]:
        """Return the GPUs that these processes use, and a note."""
        return self._gpus.read(pids, uses_cuda=not self._gpus.error and any(map(_uses_driver, pids)))

    def cores(self, pid: int) -> float:
        """Return the cores that `pid` may use."""
        return min(float(kernel.cores(pid)), kernel.cpu_limit(membership=Path(f"/proc/{pid}/cgroup")) or float("inf"))

    def throttled(self, pid: int) -> float | None:
        """Return the seconds so far that CPU quotas cost the groups of `pid`; None: there is no quota."""
        return kernel.throttled_seconds(membership=Path(f"/proc/{pid}/cgroup"))

    def uptime(self) -> float:
        """Return the seconds since boot."""
        return uptime()


def _uses_driver(pid: int) -> bool:
    with suppress(OSError):
        return any(entry.readlink().name.startswith("nvidia") for entry in Path(f"/proc/{pid}/fd").iterdir())
    return False


@dataclass(frozen=True, slots=True)
class _Reading:
    time: int
    processes: dict[int, ProcessStat]
    threads: dict[tuple[int, int], tuple[ProcessStat, ThreadTimes]]
    throttled: float | None
    gpus: tuple[GpuUse, ...]


class LiveProgram:
    """Takes snapshots of one program. CPU needs two readings: the first snapshot has none.

    :param clock: ns, monotonic, the clock of the run's tables.
    """

    def __init__(self, watched: Watched, reader: SystemReader, *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.watched = watched
        self._reader = reader
        self._clock = clock
        self._steps = StepRate(Path(watched.run)) if watched.run else None
        self._readings: deque[_Reading] = deque()

    def snapshot(self) -> Snapshot | None:
        """Look at the program now; None when it has ended."""
        pid, reader, readings = self.watched.pid, self._reader, self._readings
        processes = reader.tree(pid)
        root = processes.get(pid)
        if root is None or (readings and readings[-1].processes[pid].start_ticks != root.start_ticks):
            return None  # its PID may be another program's by now
        gpus, note = reader.gpus(list(processes))
        threads = {(each, tid): thread for each in processes for tid, thread in reader.threads(each).items()}
        now = _Reading(self._clock(), processes, threads, reader.throttled(pid), gpus)
        readings.append(now)
        while len(readings) > 2 and now.time - readings[1].time >= SPAN_S * 1e9:
            readings.popleft()
        before = readings[0]
        interval = (now.time - before.time) / 1e9
        steps, reason = self._steps.read(now.time) if self._steps else (None, NOT_OURS)
        unknown = {"cpu": "" if interval else "needs two readings", "steps": reason, "gpus": note}
        is_worker = {
            each: stat.parent in processes and (steps is None or each != steps.pid) and reader.is_worker(each, stat)
            for each, stat in processes.items()
        }
        early = {each: stat.cpu_s for each, stat in before.processes.items()}
        used = {each: stat.cpu_s - early.get(each, 0.0) for each, stat in processes.items()}
        cpu = {each: seconds / interval if interval else None for each, seconds in used.items()}
        throttled = None
        if interval and now.throttled is not None and before.throttled is not None:
            throttled = max(0.0, now.throttled - before.throttled) / interval
        return Snapshot(
            watched=self.watched,
            ran=max(0.0, reader.uptime() - root.started_s),
            cores=reader.cores(pid),
            cpu=sum(used.values()) / interval if interval else None,
            throttled=throttled,
            rss=sum(stat.rss_bytes for stat in processes.values()),
            processes=len(processes),
            workers=tuple(WorkerUse(each, cpu[each], processes[each].rss_bytes) for each in cpu if is_worker[each]),
            threads=_threads(now, before, steps, is_worker),
            gpus=tuple(replace(gpu, utilization=_mean_utilization(gpu, readings)) for gpu in gpus),
            steps=steps,
            unknown={name: why for name, why in unknown.items() if why},
        )


def _threads(
    now: _Reading, before: _Reading, steps: StepUse | None, is_worker: dict[int, bool]
) -> tuple[ThreadUse, ...]:
    uses, interval = [], (now.time - before.time) / 1e9
    for key, (stat, used) in now.threads.items():
        pid, tid = key
        cpu = delayed = None
        if interval:
            # a thread that was not there before began since: all that it used was in this time
            early = before.threads[key][1] if key in before.threads else ThreadTimes(0, 0)
            cpu = max(0, used.cpu_ns - early.cpu_ns) / 1e9 / interval
            delayed = max(0, used.wait_ns - early.wait_ns) / 1e9 / interval
        role = MAIN if pid == tid and not is_worker[pid] else ""
        role = TRAINING if steps is not None and key == (steps.pid, steps.tid) else role
        uses.append(ThreadUse(pid, tid, stat.name, stat.state, cpu, role, delayed))
    return tuple(sorted(uses, key=lambda use: (-(use.cpu or 0.0), use.pid, use.tid)))


def _mean_utilization(gpu: GpuUse, readings: deque[_Reading]) -> float | None:
    same = [each.utilization for reading in readings for each in reading.gpus if each.index == gpu.index]
    known = [each for each in same if each is not None]
    return sum(known) / len(known) if known and gpu.utilization is not None else None


def describe_end(watched: Watched) -> str:
    """Tell how the program ended; the end of a run is read from its manifest once that is closed."""
    if not watched.run:
        return f"{watched.program} (pid {watched.pid}) has ended"
    until = time.monotonic() + _CLOSING_S
    while True:
        try:
            info = read_manifest(Path(watched.run))
        except ProfilerError as error:
            return f"{watched.program} has ended: {error}"
        if info.state != "running":
            break
        if time.monotonic() >= until:
            return f"{watched.program} has ended; its recorder is still at work on {watched.run}, or was killed"
        time.sleep(0.1)
    code = "" if info.exit_code is None else f", exit code {info.exit_code}"
    seconds = ((info.end or info.begin) - info.begin) / 1e9
    diagnose = f"{called_as()} diagnose {shlex.quote(watched.run)}"
    return f"{info.label} has ended: {info.state}{code}, {seconds:.1f} s; {diagnose}"
