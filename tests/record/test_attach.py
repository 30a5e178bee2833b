"""Attaching to a job that this test started, as to any other: what it records, what ends it, and what it refuses."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model.host import ThreadState
from profiler.core.errors import ProfilerError
from profiler.record import launch as module
from profiler.record.kernel import missing_permission
from profiler.record.launch import JobMembers, attach, attach_spec, check_attachable, command, rank
from profiler.run import tables
from profiler.run.load import load

# A child that waits, and a thread of its own that adds numbers up until a line comes.
JOB = """
import os, subprocess, sys, threading
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
def add_up():
    total = 0
    while not told:
        total += 1
told = []
threading.Thread(target=lambda: told.append(sys.stdin.readline()), daemon=True).start()
print(child.pid, flush=True)
add_up()
child.communicate(b"\\n")
print("done")
"""
SPY = shutil.which("py-spy", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
needs_stacks = pytest.mark.skipif(
    SPY is None or missing_permission(os.getppid()) != "", reason="needs py-spy and the permission to use it"
)


@contextmanager
def job(folder: Path) -> Iterator[tuple[int, int]]:
    """The process ids of the job and of its child."""
    script = folder / "job.py"
    script.write_text(JOB)
    process = subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.pid, int(process.stdout.readline())
        out, _ = process.communicate("\n", timeout=60)
        assert (out, process.returncode) == ("done\n", 0), "the job goes on to its own end"
    finally:
        process.kill()
        process.wait()


@needs_stacks
def test_a_running_job_is_recorded_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "recorder"
    holders = folder / "gil_stacks.bin"

    def end_when_both_are_seen() -> None:
        enough = holders.exists() and holders.stat().st_size >= 10 * tables.packer("stacks").size
        if enough and len(list(folder.glob("window-*"))) >= 2:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with job(tmp_path) as (pid, child):
        info = attach(pid, attach_spec(pid, tmp_path / "run"), 120, watch=end_when_both_are_seen)
    assert signal.getsignal(signal.SIGINT) is before
    run = load(tmp_path / "run")
    assert (info.state, info.argv[1:], run.problems) == ("attached", (str(tmp_path / "job.py"),), ())
    assert [entry["pid"] for entry in run.info.facts["processes"]] == [pid, child]
    main = analyse(run).threads[0]
    assert main.pid == pid
    assert main.state in (ThreadState.PYTHON, ThreadState.CORE), "it works, and waits for a core on a busy machine"
    assert main.site is not None
    assert (main.site.function, main.site.source) in (("add_up", "total += 1"), ("add_up", "while not told:"))
    assert main.gil is not None
    assert main.gil > 0, "how much depends on how busy the machine is"
    held = run.gil_stacks[run.gil_stacks["pid"] == pid]
    assert (held["tid"] == pid).mean() > 0.5, "adding up needs the GIL, and the other thread waits for a line"
    assert {"process.cpu", "process.rss", "thread.cpu_s"} <= set(run.names)


@needs_stacks
def test_a_job_that_ends_ends_the_recording(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    info = attach(process.pid, attach_spec(process.pid, tmp_path / "run"), 120, watch=process.stdin.close)
    assert process.wait() != 0
    assert info.state == "attached"
    assert load(tmp_path / "run").info.end


def test_without_the_permission_the_host_is_sampled_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "missing_permission", lambda pid: "ptrace is forbidden: do this")
    with job(tmp_path) as (pid, _):
        info = attach(pid, attach_spec(pid, tmp_path / "run"), 0.3)
    run = load(tmp_path / "run")
    (status,) = (status for status in info.collectors if status.name == "stacks")
    assert (status.state, status.reason) == ("unavailable", "ptrace is forbidden: do this")
    assert "process.rss" in run.names
    assert (len(run.stacks), analyse(run).threads) == (0, ())


def test_refusals() -> None:
    shell = subprocess.Popen(["/bin/sh", "-c", "echo ready; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert shell.stdin is not None
    assert shell.stdout is not None
    # The kernel shows a command line some time after it let the parent go: only what it says proves that it runs.
    assert shell.stdout.readline() == b"ready\n"
    is_shell = r"\(/bin/sh -c echo ready; read line\) is no Python, and nothing that it started is"
    with pytest.raises(ProfilerError, match=is_shell):
        check_attachable(shell.pid)
    shell.stdin.close()
    shell.stdout.close()
    os.waitid(os.P_PID, shell.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ProfilerError, match=f"process {shell.pid} has ended: it is a zombie"):
        check_attachable(shell.pid)
    shell.wait()
    with pytest.raises(ProfilerError, match=f"there is no process {shell.pid} here"):
        check_attachable(shell.pid)
    with pytest.raises(ProfilerError, match="is this profiler itself"):
        check_attachable(os.getpid())


@pytest.mark.parametrize(
    ("own", "owner", "scope", "words"),
    [
        (1000, 1000, "1", ("kernel.yama.ptrace_scope is 1", "sudo sysctl kernel.yama.ptrace_scope=0", "profiler run")),
        (1000, 1000, "2", ("kernel.yama.ptrace_scope is 2", "only root", "sudo")),
        (1000, 1000, "3", ("kernel.yama.ptrace_scope is 3", "nobody may")),
        (1000, 4242, "1", ("belongs to another user (number 4242)", "as that user, or as root")),
        (0, 4242, "1", ("root without the capability SYS_PTRACE", "--cap-add=SYS_PTRACE")),
        (1000, 1000, "", ("ptrace of process 5 is forbidden", "SYS_PTRACE")),
    ],
)
def test_the_permission_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: int, owner: int, scope: str, words: tuple[str, ...]
) -> None:
    """The folder is a /proc in which the memory of process 5 is closed to us."""
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "status").write_text(f"Name:\tpython\nUid:\t{owner}\t{owner}\n")
    if scope:
        (tmp_path / "sys/kernel/yama").mkdir(parents=True)
        (tmp_path / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")
    really_open = os.open

    def refuse(path: str | Path, flags: int) -> int:
        if Path(path).name == "mem":
            raise PermissionError(13, "Permission denied")
        return really_open(path, flags)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "geteuid", lambda: own)
    found = missing_permission(5, tmp_path)
    assert "\n" not in found
    assert [word for word in words if word not in found] == []


@pytest.mark.parametrize(
    ("environment", "found"), [({"RANK": "3", "LOCAL_RANK": "1"}, 3), ({"LOCAL_RANK": "1"}, 1), ({"RANK": "x"}, None)]
)
def test_the_rank_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], found: int | None
) -> None:
    monkeypatch.setattr(module, "read_environment", lambda pid: environment)
    assert rank(1) == found


def test_our_own_processes_are_no_members_and_long_words_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    members = JobMembers(os.getppid())
    members.update()
    pids = [row["pid"] for row in members.rows()]
    assert os.getppid() in pids
    assert os.getpid() not in pids
    monkeypatch.setattr(module, "read_arguments", lambda pid: ("python", "x" * 500, "\x1b[2J"))
    assert command(1) == f"python {'x' * 40}... \ufffd[2J"


def test_a_missing_command_line_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    members, commands = JobMembers(os.getppid()), []
    for words in ((), ("python", "train.py"), ("another",)):
        monkeypatch.setattr(module, "read_arguments", lambda pid, words=words: words)
        members.update()
        commands.append(members.rows()[0]["command"])
    assert commands == ["no command line", "python train.py", "python train.py"]
