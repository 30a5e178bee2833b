"""Records a job that already runs, from outside: nothing is started, stopped or put into it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from profiler.core.errors import ProfilerError
from profiler.core.facts import program_name
from profiler.core.masking import PRIVATE, Privacy, recorded_arguments
from profiler.core.procfs import is_alive, is_python, process_tree, read_arguments, read_environment, wait_exit
from profiler.record.collectors import CollectorSet, Context
from profiler.record.collectors.host import git_commit
from profiler.record.kernel import missing_permission
from profiler.record.launch import close_run, new_manifest
from profiler.record.target import handled_signals
from profiler.run import store
from profiler.run.model import RunInfo, RunSpec
from profiler.run.source_text import ProgramFiles

ATTACHED: Final = "attached"
"""State of such a run: it began and ended while the program ran."""
LEVEL: Final = "standard"
_WAKE_S: Final = 0.1
_MAX_WORD: Final = 40
"""Number of characters shown of a word of a command line: some words contain whole settings as JSON."""
_MAX_COMMAND: Final = 120
_RANK_VARIABLES: Final = ("RANK", "LOCAL_RANK")


def check_attachable(pid: int) -> None:
    """:raises ProfilerError: there is no process `pid`, it has ended, or neither it nor a child of it is Python."""
    if not Path(f"/proc/{pid}").exists():
        raise ProfilerError(f"there is no process {pid} here; a container shows only its own processes")
    if not is_alive(pid):
        raise ProfilerError(f"process {pid} has ended: it is a zombie, for which its parent has not waited yet")
    if pid == os.getpid():
        raise ProfilerError(f"process {pid} is this profiler itself")
    if not any(map(is_python, process_tree(pid))) and not missing_permission(pid):
        raise ProfilerError(f"process {pid} ({command(pid)}) is no Python, and nothing that it started is")


def attach_spec(pid: int, out: Path, privacy: Privacy = PRIVATE) -> RunSpec:
    """Specify the recording of `pid` into `out`."""
    argv = read_arguments(pid) or (f"process-{pid}",)
    label = f"{program_name(argv)} ({pid})"
    return RunSpec(argv=argv, out=out.absolute(), level=LEVEL, label=label, hooks=False, privacy=privacy)


def attach(pid: int, spec: RunSpec, seconds: float, *, watch: Callable[[], None] | None = None) -> RunInfo:
    """Record process `pid` and what it started for `seconds`, or until it ends, or Ctrl-C; the run is in `spec.out`.

    Without the permission to read its stacks, the samples of host and GPU are recorded all the same.

    :param watch: called about ten times a second meanwhile.
    :raises ProfilerError: there is no such process (see `check_attachable`), or the run directory cannot be made.
    """
    check_attachable(pid)
    refusal = missing_permission(pid)
    chosen = ("environment", "gpu", "host") if refusal else ("environment", "gpu", "host", "stacks")
    collectors = CollectorSet(replace(spec, collectors=chosen))
    files = ProgramFiles.of_process(pid)
    store.create(spec.out, shared=spec.privacy.shared)
    fields = collectors.describe()
    fields |= {"versions": {}, "git_commit": git_commit(Path(f"/proc/{pid}/cwd"))}  # of the job, not of the recorder
    info = new_manifest(spec, fields)
    store.write_manifest(spec.out, info)
    writer = store.RunWriter(spec.out)
    members = JobMembers(pid, arguments=spec.privacy.arguments)
    signals: list[int] = []  # they end the recording, and what is recorded is kept
    with handled_signals(lambda number, _: signals.append(number)):
        collectors.start(Context(spec, pid, writer))
        until = time.monotonic() + seconds
        try:
            members.update()
            while not signals and (remaining := until - time.monotonic()) > 0 and is_alive(pid):
                _wait(pid, min(_WAKE_S, remaining))
                if watch:
                    watch()
                members.update()
        finally:
            end = time.monotonic_ns()
            collectors.stop()
            writer.close()
            facts: dict[str, Any] = {"attached": pid, "processes": members.rows()}
            if not info.devices:
                facts["device"] = "cpu"
            statuses = tuple(
                replace(status, state="unavailable", reason=refusal, code="ptrace-forbidden")
                if refusal and status.name == "stacks"
                else status
                for status in collectors.statuses
            )
            info = replace(info, state=ATTACHED, end=end, collectors=statuses, facts=facts)
            close_run(spec, info, files)
    return info


class JobMembers:
    """The processes of a job, by generation; those of this profiler are left out."""

    def __init__(self, root: int, *, arguments: bool = True) -> None:
        self._root = root
        self._arguments = arguments
        self._members: dict[int, dict[str, Any]] = {}

    def update(self) -> None:
        """Add new processes.

        The kernel has no command line of a process for a moment while that becomes another program: those are read
        again.
        """
        tree = process_tree(self._root)
        ours = set(process_tree(os.getpid())) if os.getpid() in tree else set()
        for pid in tree:
            if pid not in ours and not self._members.get(pid, {}).get("command"):
                name = "main process" if pid == self._root else "child"
                number = rank(pid) if is_python(pid) else None
                said = command(pid, arguments=self._arguments)
                self._members[pid] = {"pid": pid, "name": name, "rank": number, "command": said}

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each process, for the manifest."""
        return [{**member, "command": member["command"] or "no command line"} for member in self._members.values()]


def rank(pid: int) -> int | None:
    """Return the rank of a process of a distributed job, from its environment; None where it has or shows none."""
    environment = read_environment(pid)
    return next((int(text) for name in _RANK_VARIABLES if (text := environment.get(name, "")).isdecimal()), None)


def command(pid: int, *, arguments: bool = True) -> str:
    """Return the command line of `pid`, shortened and safe to print; '' when it has none.

    :param arguments: False: only the words that start its program.
    """
    all_words = recorded_arguments(read_arguments(pid), arguments=arguments)
    words = (word if len(word) <= _MAX_WORD else f"{word[:_MAX_WORD]}..." for word in all_words)
    return "".join(char if char.isprintable() else "\ufffd" for char in " ".join(words))[:_MAX_COMMAND]


def _wait(pid: int, seconds: float) -> None:
    try:
        wait_exit(pid, seconds)
    except ChildProcessError:  # a system without pidfd can wait for its own children only
        time.sleep(seconds)
