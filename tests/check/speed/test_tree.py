"""A program with all its processes: who belongs to it, and that no signal goes to anyone else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profiler.check.speed import table
from profiler.check.speed import tree as module
from profiler.check.speed.table import Seen, look
from profiler.check.speed.tree import Tree
from profiler.check.speed.watchdog import Guard
from profiler.core.errors import ProfilerError

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
libc.clone(libc.pause, top, 0x100 | 0x4000 | 17, None)  # VM, VFORK and SIGCHLD: a child that never gets to exec
"""


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[subprocess.Popen[str]] = []

    def begin(source: str, *words: str) -> subprocess.Popen[str]:
        made.append(
            subprocess.Popen(
                [sys.executable, "-c", source, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return made[-1]

    yield begin
    for process in made:
        Tree(process.pid).kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def state(pid: int) -> str:
    seen = look(pid)
    return "gone" if seen is None else seen.state


def until(found: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not found():
        assert time.monotonic() < limit
        time.sleep(0.005)


def test_frozen_thawed_and_killed_whole(start: Start) -> None:
    root = start(WITH_CHILD)
    child = int(first_line(root))
    tree = Tree(root.pid)
    for _ in range(3):
        tree.freeze()
        assert (state(root.pid), state(child)) == ("T", "T")
        tree.thaw()
        assert "T" not in {state(root.pid), state(child)}
    tree.kill()
    root.wait()
    assert state(child) in {"gone", "Z"}


def test_one_that_loses_its_parent_while_it_stands_goes_on_and_is_stopped_again(start: Start) -> None:
    root = start(WITH_CHILD, "own")
    child = int(first_line(root))
    tree = Tree(root.pid)
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


def test_who_belongs_to_it(start: Start) -> None:
    root, other = start(WITH_CHILD), start(WAITS)
    child = int(first_line(root))
    tree = Tree(root.pid)
    assert tree.has(root.pid)
    assert tree.has(child)
    assert not tree.has(other.pid)
    assert not tree.has(os.getpid())
    root.kill()
    root.wait()
    assert tree.has(child), "one of its session"
    assert not tree.has(root.pid)


def test_a_pid_that_was_given_again_gets_no_signal(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    root = start(WITH_CHILD)
    child = int(first_line(root))
    tree = Tree(root.pid)
    tree.freeze()
    later = {pid: seen._replace(start=seen.start + 1) for pid in (root.pid, child) if (seen := look(pid)) is not None}
    sent: list[tuple[int, int]] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
        patch.setattr(os, "killpg", lambda pid, number: sent.append((pid, number)))
        for place in (table, module):
            patch.setattr(place, "look", later.get)
        patch.setattr(module, "everyone", lambda: dict(later))
        assert tree.members() == []
        assert not tree.has(root.pid)
        tree.thaw()
        tree.freeze()
        tree.kill()
    assert sent == []


def test_a_child_of_another_user_is_left_alone(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    root = start(WITH_CHILD)
    child = int(first_line(root))
    send = os.kill

    def refuse(pid: int, number: int) -> None:
        if pid == child:
            raise PermissionError
        send(pid, number)

    tree = Tree(root.pid)
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", refuse)
        tree.freeze()
        assert (state(root.pid), state(child) == "T") == ("T", False)
        tree.thaw()
        tree.kill()
        assert root.wait() == -signal.SIGKILL
        assert state(child) not in {"gone", "Z"}


def test_one_that_goes_on_running_is_an_error(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    root = start("while True: pass")
    monkeypatch.setattr(module, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(module, "_send", lambda pid, number: True)
    with pytest.raises(ProfilerError, match=rf"^process {root.pid} of the program \(.*while True.*\) still runs"):
        Tree(root.pid).freeze()


def test_a_parent_in_vfork_stands_with_its_child(start: Start) -> None:
    root = start(IN_VFORK)
    first_line(root)
    until(lambda: state(root.pid) == "D")
    tree = Tree(root.pid)
    until(lambda: len(tree.members()) == 2)
    begin = time.monotonic()
    tree.freeze()
    assert time.monotonic() - begin < module._PATIENCE_S / 2, "it waited for what cannot come"
    child = tree.members()[1]
    assert (state(root.pid), state(child)) == ("D", "T")
    tree.thaw()
    assert state(child) != "T"


def test_the_guard_hears_of_all_before_they_are_stopped(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, str]] = []

    class Hears(Guard):
        def __init__(self) -> None: ...

        def watch(self, pid: int, seen: Seen | None = None) -> None:
            there = look(pid)
            assert there is not None
            assert seen is not None
            assert seen.start == there.start
            told.append((pid, there.state))

    root = start(WITH_CHILD)
    child = int(first_line(root))
    tree = Tree(root.pid, Hears())
    tree.freeze()
    tree.thaw()
    tree.freeze()
    assert [pid for pid, _ in told] == [root.pid, child], "each once"
    assert "T" not in {was for _, was in told}


def test_a_name_with_brackets_and_blanks_is_read(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to(sys.executable)
    process = subprocess.Popen([program, "-S", "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    first_line(process)
    seen = look(process.pid)
    assert seen is not None
    assert (seen.parent, seen.session) == (os.getpid(), os.getsid(0))
    assert table.lives(process.pid, seen.start)
    assert not table.lives(process.pid, seen.start + 1)
    process.communicate()
    assert look(process.pid) is None
