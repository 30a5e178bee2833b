"""Finds what a live view is to look at: a process, a run that is being recorded, or the newest of those."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from profiler.core.errors import ProfilerError
from profiler.core.live import Watched
from profiler.core.procfs import PROC, Folder, pids, process_tree, read_arguments, read_environment, read_stat
from profiler.run import store, tables
from profiler.run.model import RunInfo

_HOW: Final = (
    "give the PID of a program or the directory of a run, or record one: python -m profiler run -- python train.py"
)


def watched(asked: str | None, *, proc: Folder = PROC) -> Watched:
    """What `asked` names: digits are a PID, anything else is a run directory, None the newest run being recorded.

    :raises ProfilerError: no such process, not a run, a run that has ended, or nothing is being recorded.
    """
    if asked is None:
        return _newest(proc)
    if asked.isdecimal() and not Path(asked).is_dir():
        return _process(int(asked), proc)
    path = Path(asked).absolute()
    info = store.read_manifest(path)
    if info.state != "running":
        raise ProfilerError(f"the run {asked} is over ({info.state}): python -m profiler diagnose {asked}")
    pid = _root(path, proc)
    if pid is None:
        raise ProfilerError(f"no process of the run {asked} is there: it or its recorder was killed")
    return _of_run(path, info, pid)


def _process(pid: int, proc: Folder) -> Watched:
    if not Path(proc, str(pid)).exists():
        raise ProfilerError(f"there is no process {pid}")
    for member in process_tree(pid, proc):
        run = recorded_in(member, proc)
        with suppress(ProfilerError):
            if run is not None and (info := store.read_manifest(run)).state == "running":
                return Watched(pid, store.program_name(info.argv), info.argv, str(run), info.level)
    argv = read_arguments(pid, proc)
    return Watched(pid, store.program_name(argv) if argv else f"process {pid}", argv)


def _newest(proc: Folder) -> Watched:
    """Of the runs that some process of this machine is recorded into."""
    running: list[tuple[RunInfo, Path]] = []
    for run in {run for pid in pids(proc) if (run := recorded_in(pid, proc))}:
        with suppress(ProfilerError):
            info = store.read_manifest(run)
            if info.state == "running":
                running.append((info, run))
    for info, run in sorted(running, key=lambda entry: -entry[0].begin):
        pid = _root(run, proc)
        if pid is not None:
            return _of_run(run, info, pid)
    raise ProfilerError(f"nothing is being recorded: {_HOW}")


def _of_run(run: Path, info: RunInfo, pid: int) -> Watched:
    return Watched(pid, info.label or store.program_name(info.argv), info.argv, str(run), info.level)


def _root(run: Path, proc: Folder) -> int | None:
    """The target of `run`: the process recorded into it whose parent is not; of several the one with most processes."""
    members = {pid for pid in pids(proc) if recorded_in(pid, proc) == run}
    stats = {pid: read_stat(pid, proc=proc) for pid in members}
    roots = [pid for pid, stat in stats.items() if stat is None or stat.parent not in members]
    return min(roots, key=lambda pid: (-len(members.intersection(process_tree(pid, proc))), pid), default=None)


def recorded_in(pid: int, proc: Folder = PROC) -> Path | None:
    """The run directory into which `pid` records; None where there is none or its environment cannot be read."""
    run = read_environment(pid, proc).get(tables.ENV_RUN)
    return Path(run) if run is not None else None
