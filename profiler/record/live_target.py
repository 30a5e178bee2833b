"""Finds what a live view is to look at: a process, a run that is being recorded, or the newest of those."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from profiler.core.errors import ProfilerError
from profiler.core.live import Watched
from profiler.record.processes import descendants
from profiler.run import store, tables
from profiler.run.model import RunInfo

PROC: Final = Path("/proc")
_HOW: Final = (
    "give the PID of a program or the directory of a run, or record one: python -m profiler run -- python train.py"
)


def watched(asked: str | None, *, proc: Path = PROC) -> Watched:
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


def _process(pid: int, proc: Path) -> Watched:
    if not (proc / str(pid)).exists():
        raise ProfilerError(f"there is no process {pid}")
    argv = argv_of(pid, proc)
    for one in (pid, *descendants(pid)):
        run = recorded_in(one, proc)
        with suppress(ProfilerError):
            if run is not None and (info := store.read_manifest(run)).state == "running":
                return Watched(pid, store.program_name(info.argv), info.argv, str(run), info.level)
    return Watched(pid, store.program_name(argv) if argv else f"process {pid}", argv)


def _newest(proc: Path) -> Watched:
    """Of the runs that some process of this machine is recorded into."""
    found: list[tuple[RunInfo, Path]] = []
    for run in {run for pid in _pids(proc) if (run := recorded_in(pid, proc))}:
        with suppress(ProfilerError):
            info = store.read_manifest(run)
            if info.state == "running":
                found.append((info, run))
    for info, run in sorted(found, key=lambda entry: -entry[0].begin):
        pid = _root(run, proc)
        if pid is not None:
            return _of_run(run, info, pid)
    raise ProfilerError(f"nothing is being recorded: {_HOW}")


def _of_run(run: Path, info: RunInfo, pid: int) -> Watched:
    return Watched(pid, info.label or store.program_name(info.argv), info.argv, str(run), info.level)


def _root(run: Path, proc: Path) -> int | None:
    """The target of `run`: the process recorded into it whose parent is not."""
    own = {pid for pid in _pids(proc) if recorded_in(pid, proc) == run}
    roots = [pid for pid in own if parent_of(pid, proc) not in own]
    return min(roots, key=lambda pid: (-len(set(descendants(pid)) & own), pid), default=None)


def recorded_in(pid: int, proc: Path = PROC) -> Path | None:
    """The run directory that `pid` was told to write to; None: none, or its environment is not ours to read."""
    try:
        environment = (proc / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = tables.ENV_RUN.encode() + b"="
    return next((Path(os.fsdecode(line[len(prefix) :])) for line in environment if line.startswith(prefix)), None)


def argv_of(pid: int, proc: Path = PROC) -> tuple[str, ...]:
    """The command line of `pid`; empty when it is gone."""
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ()
    return tuple(word.decode(errors="replace") for word in words if word)


def parent_of(pid: int, proc: Path = PROC) -> int:
    """0 when it is gone."""
    try:
        return int((proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _pids(proc: Path) -> Iterator[int]:
    yield from (int(name) for name in os.listdir(proc) if name.isdecimal())  # noqa: PTH208 - a Path each costs thrice
