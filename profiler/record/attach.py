"""Records a job that already runs: nothing is started, stopped or put into it, it is only looked at from outside."""

from __future__ import annotations

import dataclasses
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from profiler.core.errors import ProfilerError
from profiler.core.procfs import is_alive, is_python, process_tree, read_arguments, read_environment, wait_exit
from profiler.record.collector import Context
from profiler.record.collectors.environment import git_commit
from profiler.record.crew import Crew
from profiler.record.permission import missing_permission
from profiler.run import store, tables
from profiler.run.model import CollectorStatus, RunInfo, RunSpec

ATTACHED: Final = "attached"
"""State of such a run: it began and ended in the middle of the program."""
LEVEL: Final = "standard"
_WAKE_S: Final = 0.1
_LONGEST: Final = 40
"""Characters of a word of a command line that are shown: some hold whole settings as JSON."""
_UNSAID: Final = "no command line"
_RANKS: Final = ("RANK", "LOCAL_RANK")
_OFF: Final = ("stacks",)
"""Collectors that need the permission."""


def check(pid: int) -> None:
    """:raises ProfilerError: there is no process `pid`, it has ended, or neither it nor a child of it is Python."""
    if not Path(f"/proc/{pid}").exists():
        raise ProfilerError(f"there is no process {pid} here; in a container only its own processes are seen")
    if not is_alive(pid):
        raise ProfilerError(f"process {pid} has ended: it is a zombie, which its parent has not yet taken notice of")
    if pid == os.getpid():
        raise ProfilerError(f"process {pid} is this profiler itself")
    if not any(map(is_python, process_tree(pid))) and not missing_permission(pid):
        raise ProfilerError(f"process {pid} ({_shown(pid)}) is no Python, and nothing that it started is")


def spec_of(pid: int, out: Path) -> RunSpec:
    """What to record of `pid`, into `out`."""
    return RunSpec(argv=read_arguments(pid) or (f"process-{pid}",), out=out.absolute(), level=LEVEL, hooks=False)


def attach(pid: int, spec: RunSpec, seconds: float, *, watch: Callable[[], None] | None = None) -> RunInfo:
    """Record process `pid` and what it started for `seconds`, or until it ends, or Ctrl-C; the run is in `spec.out`.

    Without the permission to read its stacks, the samples of host and GPU are recorded all the same.

    :param watch: called about ten times a second meanwhile.
    :raises ProfilerError: there is no such process (see `check`), or the run directory cannot be made.
    """
    check(pid)
    refusal = missing_permission(pid)
    chosen = ("environment", "gpu", "host", *(() if refusal else _OFF))
    crew = Crew(dataclasses.replace(spec, collectors=chosen))
    store.create(spec.out)
    described = {**crew.describe(), "versions": {}, "git_commit": git_commit(Path(f"/proc/{pid}/cwd"))}  # not ours
    seen: dict[int, dict[str, Any]] = {}
    info = _opened(pid, spec, described)
    store.write_manifest(spec.out, info)
    writer = store.RunWriter(spec.out)
    with _noting_signals() as told:
        crew.start(Context(spec, pid, writer))
        until = time.monotonic() + seconds
        try:
            _look(pid, seen)
            while not told and (left := until - time.monotonic()) > 0 and is_alive(pid):
                _wait(pid, min(_WAKE_S, left))
                if watch:
                    watch()
                _look(pid, seen)
        finally:
            end = time.monotonic_ns()
            crew.stop()
            writer.close()
            facts = {"attached": pid, "processes": list(seen.values()), **({} if info.devices else {"device": "cpu"})}
            statuses = tuple(_told(status, refusal) for status in crew.statuses)
            info = dataclasses.replace(info, state=ATTACHED, end=end, collectors=statuses, facts=facts)
            store.write_manifest(spec.out, info)
    return info


def _opened(pid: int, spec: RunSpec, described: dict[str, Any]) -> RunInfo:
    return RunInfo(
        schema=tables.SCHEMA,
        run_id=secrets.token_hex(6),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        argv=spec.argv,
        label=spec.label or f"{store.program_name(spec.argv)} ({pid})",
        level=spec.level,
        begin=time.monotonic_ns(),
        **described,
    )


def _told(status: CollectorStatus, refusal: str) -> CollectorStatus:
    """The status with the permission that is missing as its reason, where that is it."""
    if refusal and status.name in _OFF:
        return CollectorStatus(status.name, "unavailable", refusal)
    return status


def _look(pid: int, seen: dict[int, dict[str, Any]]) -> None:
    """Note the processes of the job that were not there before, those next to its root first; ours are none of it.

    The kernel has no command line of a process for a moment while that becomes another program: it is asked again.
    """
    members = process_tree(pid)
    ours = set(process_tree(os.getpid())) if os.getpid() in members else set()
    for one in members:
        if one not in ours and seen.get(one, {"command": _UNSAID})["command"] == _UNSAID:
            rank = _rank(one) if is_python(one) else None
            name = "main process" if one == pid else "child"
            seen[one] = {"pid": one, "name": name, "rank": rank, "command": _shown(one)}


def _rank(pid: int) -> int | None:
    """Of a distributed job, as its launcher told the process; None: none, or its environment is not ours to read."""
    environment = read_environment(pid)
    return next((int(rank) for name in _RANKS if (rank := environment.get(name, "")).isdecimal()), None)


def _shown(pid: int) -> str:
    words = [word if len(word) <= _LONGEST else f"{word[:_LONGEST]}..." for word in read_arguments(pid)]
    text = " ".join(words) or _UNSAID
    return "".join(char if char.isprintable() else "\ufffd" for char in text)[:120]


def _wait(pid: int, seconds: float) -> None:
    try:
        wait_exit(pid, seconds)
    except ChildProcessError:  # a system without pidfd can wait for its own children only
        time.sleep(seconds)


@contextmanager
def _noting_signals() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM as a list that is no longer empty: what is recorded by then is kept."""
    told: list[int] = []
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, lambda number, _: told.append(number))
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
