"""A process tree: which processes belong to it, and that no other process gets a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from profiler.check.speed import processes
from profiler.check.speed.processes import ProcessTree
from profiler.core import procfs
from profiler.core.errors import ProfilerError
from profiler.core.procfs import ProcessStat, read_stat
from tests.check.speed.programs import state, until

Start = Callable[[str], subprocess.Popen[str]]

WAITS = "import sys; print('up', flush=True); sys.stdin.read()"
WITH_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
                         stdout=subprocess.PIPE, start_new_session="own" in sys.argv)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""
IN_VFORK = """
import ctypes
libc = ctypes.CDLL(None)
stack = ctypes.create_string_buffer(1 << 16)
top = ctypes.c_void_p((ctypes.addressof(stack) + (1 << 16)) & ~15)
print("up", flush=True)
libc.clone(libc.pause, top, 0x100 | 0x4000 | 17, None)  # VM, VFORK and SIGCHLD: a child that never calls exec
"""


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(source: str, *arguments: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", source, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return started[-1]

    yield begin
    for process in started:
        ProcessTree(process.pid).kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_all_processes_are_frozen_thawed_and_killed(start: Start) -> None:
    root = start(WITH_CHILD)
    child = int(first_line(root))
    tree = ProcessTree(root.pid)
    for _ in range(3):
        tree.freeze()
        assert (state(root.pid), state(child)) == ("T", "T")
        tree.thaw()
        assert "T" not in {state(root.pid), state(child)}
    tree.kill()
    root.wait()
    assert state(child) in {"gone", "Z"}


def test_a_frozen_process_that_loses_its_parent_is_thawed_and_frozen_again(start: Start) -> None:
    root = start(WITH_CHILD, "own")
    child = int(first_line(root))
    tree = ProcessTree(root.pid)
    tree.freeze()
    root.kill()
    root.wait()
    tree.thaw()
    assert state(child) != "T"
    tree.freeze()
    assert state(child) == "T"
    assert tree.members() == [child]
    tree.kill()
    until(lambda: state(child) in {"gone", "Z"})


def test_descendants_and_members_of_the_session_belong_to_the_tree(start: Start) -> None:
    root, stranger = start(WITH_CHILD), start(WAITS)
    child = int(first_line(root))
    tree = ProcessTree(root.pid)
    assert tree.contains(root.pid)
    assert tree.contains(child)
    assert not tree.contains(stranger.pid)
    assert not tree.contains(os.getpid())
    root.kill()
    root.wait()
    assert tree.contains(child), "it belongs to the session"
    assert not tree.contains(root.pid)


def test_a_reused_pid_gets_no_signal(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    root = start(WITH_CHILD)
    child = int(first_line(root))
    tree = ProcessTree(root.pid)
    tree.freeze()
    later = {
        pid: seen._replace(start_ticks=seen.start_ticks + 1)
        for pid in (root.pid, child)
        if (seen := read_stat(pid)) is not None
    }
    sent: list[tuple[int, int]] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
        patch.setattr(os, "killpg", lambda pid, number: sent.append((pid, number)))
        for module in (procfs, processes):
            patch.setattr(module, "read_stat", later.get)
        patch.setattr(processes, "all_processes", lambda: dict(later))
        assert tree.members() == []
        assert not tree.contains(root.pid)
        tree.thaw()
        tree.freeze()
        tree.kill()
    assert sent == []


def test_a_process_of_another_user_is_left_alone(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    root = start(WITH_CHILD)
    child = int(first_line(root))
    send = os.kill

    def refuse(pid: int, number: int) -> None:
        if pid == child:
            raise PermissionError
        send(pid, number)

    tree = ProcessTree(root.pid)
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", refuse)
        tree.freeze()
        assert (state(root.pid), state(child) == "T") == ("T", False)
        tree.thaw()
        tree.kill()
        assert root.wait() == -signal.SIGKILL
        assert state(child) not in {"gone", "Z"}


def test_a_process_that_keeps_running_is_an_error(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    root = start("while True: pass")
    monkeypatch.setattr(processes, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(processes, "_send", lambda pid, number: True)
    with pytest.raises(ProfilerError, match=rf"^process {root.pid} of the program \(.*while True.*\) still runs"):
        ProcessTree(root.pid).freeze()


def test_a_parent_in_vfork_counts_as_frozen_with_its_child(start: Start) -> None:
    root = start(IN_VFORK)
    first_line(root)
    until(lambda: state(root.pid) == "D")
    tree = ProcessTree(root.pid)
    until(lambda: len(tree.members()) == 2)
    begin = time.monotonic()
    tree.freeze()
    assert time.monotonic() - begin < processes._PATIENCE_S / 2, "it waited in vain"
    child = tree.members()[1]
    assert (state(root.pid), state(child)) == ("D", "T")
    tree.thaw()
    assert state(child) != "T"


def test_each_process_is_reported_before_it_is_stopped(start: Start) -> None:
    watched: list[tuple[int, str]] = []

    def watch(pid: int, stat: ProcessStat) -> None:
        current = read_stat(pid)
        assert current is not None
        assert stat.start_ticks == current.start_ticks
        watched.append((pid, current.state))

    root = start(WITH_CHILD)
    child = int(first_line(root))
    tree = ProcessTree(root.pid, watch)
    tree.freeze()
    tree.thaw()
    tree.freeze()
    assert [pid for pid, _ in watched] == [root.pid, child], "each once"
    assert "T" not in {was for _, was in watched}
