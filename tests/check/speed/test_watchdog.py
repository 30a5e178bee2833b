"""What is left of a killed gate: nothing. And of the watchdog itself, where nobody was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler.check.speed.table import Seen, look
from profiler.check.speed.watchdog import guarded
from profiler.core.procfs import descendants
from tests.check.speed.programs import ROOT

LIMIT_S = 30
WAITS = [sys.executable, "-c", "import sys; sys.stdin.read()"]
ROOT_PROGRAM = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], start_new_session="own" in sys.argv)
print(child.pid, flush=True)
sys.stdin.read()
"""
GATE = f"""
import subprocess, sys, time
sys.path.insert(0, {str(ROOT)!r})
from profiler.check.speed.tree import Tree, die_with_parent
from profiler.check.speed.watchdog import guarded
with guarded() as guard:
    root = subprocess.Popen([sys.executable, *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            start_new_session=True, preexec_fn=die_with_parent)
    tree = Tree(root.pid, guard)
    child = root.stdout.readline().strip()
    tree.freeze()
    print(root.pid, child, flush=True)
    time.sleep({LIMIT_S})
"""


def state(pid: int) -> str:
    seen = look(pid)
    return "gone" if seen is None else seen.state


def until(found: Callable[[], bool]) -> None:
    limit = time.monotonic() + LIMIT_S
    while not found():
        assert time.monotonic() < limit
        time.sleep(0.01)


def fails_with(pid: int, seen: Seen | None = None) -> None:
    with guarded() as guard:
        guard.watch(pid, seen)
        raise KeyError


@pytest.mark.parametrize("session", ["same", "own"])
def test_kill_9_of_the_gate_leaves_no_frozen_child(tmp_path: Path, session: str) -> None:
    (tmp_path / "root.py").write_text(ROOT_PROGRAM)
    gate = subprocess.Popen(
        [sys.executable, "-c", GATE, str(tmp_path / "root.py"), session], stdout=subprocess.PIPE, text=True
    )
    assert gate.stdout is not None
    root, child = map(int, gate.stdout.readline().split())
    assert (state(root), state(child)) == ("T", "T")
    (watchdog,) = set(descendants(gate.pid)) - {root, child}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(watchdog, number)
    gate.kill()
    gate.wait()
    gate.stdout.close()
    try:
        until(lambda: {state(root), state(child), state(watchdog)} <= {"gone", "Z"})
    finally:
        if state(child) == "T":
            os.kill(child, signal.SIGKILL)


def test_it_ends_with_the_block_and_what_it_watched_goes_on() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE, start_new_session=True) as process:
        before = set(descendants(os.getpid()))
        with guarded() as guard:
            (watchdog,) = set(descendants(os.getpid())) - before
            guard.watch(process.pid)
        assert look(watchdog) is None
        assert state(process.pid) not in {"gone", "Z"}
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0


def test_after_an_error_it_ends_what_is_left() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdin is not None
        with pytest.raises(KeyError):
            fails_with(process.pid)
        process.stdin.close()  # the end of one that was not killed
        assert process.wait() == -signal.SIGKILL


def test_a_pid_that_was_given_again_is_not_ended() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE, start_new_session=True) as process:
        seen = look(process.pid)
        assert seen is not None
        with pytest.raises(KeyError):
            fails_with(process.pid, seen._replace(start=seen.start - 1))
        assert state(process.pid) not in {"gone", "Z"}
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0


def test_the_number_of_what_led_no_session_is_none_of_a_session() -> None:
    """A worker's PID, given again to a process that leads a session, and is gone: who is left in it is not ours."""
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE, start_new_session=True) as process:
        seen = look(process.pid)
        assert seen is not None
        with pytest.raises(KeyError):
            fails_with(process.pid, seen._replace(start=seen.start - 1, session=1))
        assert state(process.pid) not in {"gone", "Z"}
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0


def test_the_gate_goes_on_without_it() -> None:
    before = set(descendants(os.getpid()))
    with guarded() as guard:
        (watchdog,) = set(descendants(os.getpid())) - before
        os.kill(watchdog, signal.SIGKILL)
        until(lambda: state(watchdog) == "Z")
        guard.watch(os.getpid())
        guard.watch(watchdog)
