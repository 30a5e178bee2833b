"""Looks at a running program from outside: finds it, and takes one snapshot of it after the other.

Needs nothing of the program itself and no permission beyond its owner's. CPU needs two readings: the first snapshot
has none.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler.core.errors import ProfilerError
from profiler.core.facts import program_name
from profiler.core.live import MAIN, TRAINING, WORKER, GpuUse, ProcessUse, Snapshot, StepUse, ThreadUse, Watched
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
from profiler.record.target import signals_as_interrupt
from profiler.run import store, tables
from profiler.run.model import RunInfo
from profiler.run.store import read_manifest

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


_MAX_THREADS: Final = 1024
"""Threads that are read of one process: each takes about 20 µs."""
_LOADER: Final = "pt_data_worker"
"""Name that torch (2.6 and later) gives the main thread of a loader's worker."""
NOT_OURS: Final = "not started with `profiler run`"
_FIRST_S: Final = 0.3
"""Time between the first two readings: CPU use needs two, and the first picture should appear soon."""
_CLOSING_S: Final = 3.0
"""Time that the recorder has to close the run after the program has ended."""


# ---------------------------------------------------------------- which program


def find_watched(target: str | None, *, proc: Folder = PROC) -> Watched:
    """The program that `target` names: digits are a PID, None the newest run being recorded, anything else a run.

    :raises ProfilerError: no such process, not a run, a run that has ended, or nothing is being recorded.
    """
    if target is None:
        return _newest_run(proc)
    if target.isdecimal() and not Path(target).is_dir():
        return _process(int(target), proc)
    path = Path(target).absolute()
    info = store.read_manifest(path)
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
        with suppress(ProfilerError):
            if run is not None and (info := store.read_manifest(run)).state == "running":
                return Watched(pid, program_name(info.argv), info.argv, str(run), info.level)
    argv = read_arguments(pid, proc)
    return Watched(pid, program_name(argv) if argv else f"process {pid}", argv)


def _newest_run(proc: Folder) -> Watched:
    """Find the newest run below the working directory into which some process is recorded, else the newest of all."""
    running: list[tuple[RunInfo, Path]] = []
    for run in {run for pid in pids(proc) if (run := run_directory(pid, proc))}:
        with suppress(ProfilerError):
            info = store.read_manifest(run)
            if info.state == "running":
                running.append((info, run))
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


def _program_of_run(run: Path, info: RunInfo, pid: int) -> Watched:
    return Watched(pid, info.label or program_name(info.argv), info.argv, str(run), info.level)


def _root_process(run: Path, proc: Folder) -> int | None:
    """The target of `run`: the process recorded into it whose parent is not; of several the one with most processes."""
    members = {pid for pid in pids(proc) if run_directory(pid, proc) == run}
    stats = {pid: read_stat(pid, proc=proc) for pid in members}
    roots = [pid for pid, stat in stats.items() if stat is None or stat.parent not in members]
    return min(roots, key=lambda pid: (-len(members.intersection(process_tree(pid, proc))), pid), default=None)


def run_directory(pid: int, proc: Folder = PROC) -> Path | None:
    """The run directory into which `pid` records; None where there is none or its environment cannot be read."""
    run = read_environment(pid, proc).get(tables.ENV_RUN)
    return Path(run) if run is not None else None


# ---------------------------------------------------------------- readings


class SystemReader:
    """The readings of a live view, from /proc and NVML."""

    def __init__(self) -> None:
        from profiler.record.collectors.gpu import GpuReader

        self._gpus = GpuReader()

    def tree(self, pid: int) -> dict[int, ProcessStat]:
        """`pid` first, then the processes below it; empty when it has ended."""
        stats = {member: read_stat(member) for member in process_tree(pid)}
        alive = {member: stat for member, stat in stats.items() if stat and stat.state not in ENDED_STATES}
        return alive if pid in alive else {}

    def threads(self, pid: int) -> dict[int, tuple[ProcessStat, ThreadTimes]]:
        """Threads of one process."""
        times = thread_times(pid, thread_ids(pid)[:_MAX_THREADS])
        return {tid: (stat, used) for tid, used in times.items() if (stat := read_stat(pid, tid))}

    def is_worker(self, pid: int, stat: ProcessStat) -> bool:
        """Whether `pid` was forked or spawned by the Python program that is its parent, to do part of its work."""
        if stat.name == _LOADER:
            return True
        arguments = read_arguments(pid)
        same = arguments == read_arguments(stat.parent) and is_python(pid)
        return same or "--multiprocessing-fork" in arguments

    def gpus(self, pids: list[int]) -> tuple[tuple[GpuUse, ...], str]:
        """The GPUs that these processes use, and a note."""
        return self._gpus.read(pids, uses_cuda=not self._gpus.error and any(map(_uses_driver, pids)))

    def cores(self, pid: int) -> float:
        """Cores that `pid` may use."""
        return min(float(kernel.cores(pid)), kernel.cpu_limit(membership=Path(f"/proc/{pid}/cgroup")) or float("inf"))

    def throttled(self, pid: int) -> float | None:
        """Seconds so far that CPU quotas cost the groups of `pid`; None: there is no quota."""
        return kernel.throttled_seconds(membership=Path(f"/proc/{pid}/cgroup"))

    def uptime(self) -> float:
        """Seconds since boot."""
        return uptime()


def _uses_driver(pid: int) -> bool:
    with suppress(OSError):
        return any(entry.readlink().name.startswith("nvidia") for entry in Path(f"/proc/{pid}/fd").iterdir())
    return False


# ---------------------------------------------------------------- snapshots


class LiveProgram:
    """Takes snapshots of one program.

    :param clock: ns, monotonic, the clock of the run's tables.
    """

    def __init__(
        self,
        watched: Watched,
        reader: SystemReader,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.watched = watched
        self._reader = reader
        self._clock = clock
        self._steps = StepRate(Path(watched.run)) if watched.run else None
        self._time: int | None = None
        self._start_ticks: int | None = None
        self._processes: dict[int, ProcessStat] = {}
        self._threads: dict[tuple[int, int], ThreadTimes] = {}
        self._throttled: float | None = None

    def snapshot(self) -> Snapshot | None:
        """Now; None when the program has ended."""
        stats = self._reader.tree(self.watched.pid)
        root = stats.get(self.watched.pid)
        if root is None or self._start_ticks not in {None, root.start_ticks}:  # its PID may be another program's by now
            return None
        self._start_ticks = root.start_ticks
        now, before = self._clock(), self._time
        self._time = now
        interval = (now - before) / 1e9 if before is not None and now > before else None
        unknown = {} if interval else {"cpu": "needs two readings"}
        steps, reason = self._read_steps(now)
        if reason:
            unknown["steps"] = reason
        threads = self._thread_uses(stats, interval, steps)
        processes = self._process_uses(stats, interval, threads, steps.pid if steps else 0)
        gpus, note = self._reader.gpus(list(stats))
        if note:
            unknown["gpus"] = note
        workers = {process.pid for process in processes if process.role == WORKER}
        return Snapshot(
            watched=self.watched,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            ran=max(0.0, self._reader.uptime() - root.started_s),
            interval=interval,
            cores=self._reader.cores(self.watched.pid),
            cpu=sum(process.cpu or 0.0 for process in processes) if interval else None,
            throttled=self._throttled_share(interval),
            rss=sum(process.rss for process in processes),
            processes=processes,
            threads=tuple(
                replace(use, role=MAIN) if use.pid == use.tid and use.pid not in workers and not use.role else use
                for use in threads
            ),
            gpus=gpus,
            steps=steps,
            unknown=unknown,
        )

    def _read_steps(self, now: int) -> tuple[StepUse | None, str]:
        """The last steps, or why they are not known."""
        if self._steps is None:
            return None, NOT_OURS
        try:
            return self._steps.read(now)
        except Exception as error:  # noqa: BLE001 - the edge to tables that are being written; the live view shows it
            return None, f"the tables cannot be read: {type(error).__name__}: {error}"

    def _throttled_share(self, interval: float | None) -> float | None:
        before, self._throttled = self._throttled, self._reader.throttled(self.watched.pid)
        if interval is None or before is None or self._throttled is None:
            return None
        return max(0.0, self._throttled - before) / interval

    def _thread_uses(
        self, stats: dict[int, ProcessStat], interval: float | None, steps: StepUse | None
    ) -> list[ThreadUse]:
        readings = {(pid, tid): reading for pid in stats for tid, reading in self._reader.threads(pid).items()}
        uses = []
        for (pid, tid), (stat, used) in readings.items():
            # a thread that was not there before began within the interval: all that it used was in it
            early = self._threads.get((pid, tid), ThreadTimes(0, 0))
            cpu = delayed = None
            if interval is not None:
                cpu = max(0, used.cpu_ns - early.cpu_ns) / 1e9 / interval
                delayed = max(0, used.wait_ns - early.wait_ns) / 1e9 / interval
            role = TRAINING if steps is not None and (pid, tid) == (steps.pid, steps.tid) else ""
            uses.append(ThreadUse(pid, tid, stat.name, stat.state, cpu, role, delayed))
        self._threads = {key: used for key, (_, used) in readings.items()}
        return sorted(uses, key=lambda use: (-(use.cpu or 0.0), use.pid, use.tid))

    def _process_uses(
        self, stats: dict[int, ProcessStat], interval: float | None, threads: list[ThreadUse], stepping_pid: int
    ) -> tuple[ProcessUse, ...]:
        """The clock of a process includes its ended threads, but in ticks of 10 ms; those of its threads are finer."""
        uses = []
        for pid, stat in stats.items():
            cpu = None
            if interval is not None:
                early = self._processes[pid].cpu_s if pid in self._processes else 0.0
                of_threads = sum(thread.cpu or 0.0 for thread in threads if thread.pid == pid)
                cpu = max((stat.cpu_s - early) / interval, of_threads)
            worker = stat.parent in stats and pid != stepping_pid and self._reader.is_worker(pid, stat)
            role = WORKER if worker else ""
            uses.append(ProcessUse(pid, stat.parent, stat.name, stat.state, cpu, stat.rss_bytes, stat.threads, role))
        self._processes = stats
        return tuple(uses)


def watch(live: LiveProgram, interval: float, console: Console, draw: Callable[[Snapshot], RenderableType]) -> None:
    """Show the screen; when it returns, the terminal is as before, and shows how the program ended if it did."""
    from rich.live import Live as Screen
    from rich.text import Text

    pause, ended = _FIRST_S, False
    with (
        suppress(KeyboardInterrupt),
        signals_as_interrupt(),
        Screen(Text(""), console=console, screen=True, auto_refresh=False) as screen,
    ):
        while True:
            snapshot = live.snapshot()
            if snapshot is None:
                ended = True
                break
            screen.update(draw(snapshot), refresh=True)
            time.sleep(pause)
            pause = interval
    if ended:
        console.print(Text(describe_end(live.watched)), soft_wrap=True)


def describe_end(watched: Watched) -> str:
    """Describe in a line how the program ended; the end of a run is read from its manifest once that is closed."""
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
