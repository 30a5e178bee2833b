"""The watchdog ends the processes that a killed `check` leaves behind, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from profiler.check.speed.processes import watchdog_process
from profiler.core.procfs import ProcessStat, descendants, read_stat
from tests.check.speed.programs import LIMIT_S, ROOT, state, until

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PROGRAM = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], start_new_session="own" in sys.argv)
print(child.pid, flush=True)
sys.stdin.read()
"""
CHECK = f"""
import subprocess, sys, time
sys.path.insert(0, {str(ROOT)!r})
from profiler.check.speed.processes import ProcessTree, die_with_parent
from profiler.check.speed.processes import watchdog_process
with watchdog_process() as watchdog:
    root = subprocess.Popen([sys.executable, *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            start_new_session=True, preexec_fn=die_with_parent)
    tree = ProcessTree(root.pid, watchdog.watch)
    child = root.stdout.readline().strip()
    tree.freeze()
    print(root.pid, child, flush=True)
    time.sleep({LIMIT_S})
"""


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends when its standard input is closed."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process


def end_of(process: subprocess.Popen[bytes]) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return process.wait()


def fail_while_watching(pid: int, stat: ProcessStat | None = None) -> None:
    with suppress(KeyError), watchdog_process() as watchdog:
        watchdog.watch(pid, stat)
        raise KeyError


@pytest.mark.parametrize("session", ["same", "own"])
def test_sigkill_of_check_leaves_no_frozen_child(tmp_path: Path, session: str) -> None:
    (tmp_path / "root.py").write_text(PROGRAM)
    check = subprocess.Popen(
        [sys.executable, "-c", CHECK, str(tmp_path / "root.py"), session], stdout=subprocess.PIPE, text=True
    )
    assert check.stdout is not None
    root, child = map(int, check.stdout.readline().split())
    assert (state(root), state(child)) == ("T", "T")
    (watchdog,) = set(descendants(check.pid)) - {root, child}
    for number in SIGNALS:
        os.kill(watchdog, number)
    check.kill()
    check.wait()
    check.stdout.close()
    try:
        until(lambda: {state(root), state(child), state(watchdog)} <= {"gone", "Z"})
    finally:
        if state(child) == "T":
            os.kill(child, signal.SIGKILL)


def test_no_signal_can_end_the_watchdog_before_its_first_line_runs() -> None:
    before = set(descendants(os.getpid()))
    with watchdog_process():
        (watchdog,) = set(descendants(os.getpid())) - before
        status = Path(f"/proc/{watchdog}/status").read_text()
        blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16)
        assert all(blocked >> (number - 1) & 1 for number in SIGNALS)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & set(SIGNALS), "our mask is restored"


def test_it_ends_with_the_block_and_leaves_what_it_watched(waiting: subprocess.Popen[bytes]) -> None:
    before = set(descendants(os.getpid()))
    with watchdog_process() as watchdog:
        (pid,) = set(descendants(os.getpid())) - before
        watchdog.watch(waiting.pid)
    assert read_stat(pid) is None
    assert end_of(waiting) == 0


def test_after_an_exception_it_ends_what_is_left(waiting: subprocess.Popen[bytes]) -> None:
    fail_while_watching(waiting.pid)
    assert end_of(waiting) == -signal.SIGKILL


@pytest.mark.parametrize("changes", [{}, {"session": 1}], ids=["a session leader", "another process"])
def test_a_reused_pid_is_not_ended(waiting: subprocess.Popen[bytes], changes: dict[str, int]) -> None:
    stat = read_stat(waiting.pid)
    assert stat is not None
    fail_while_watching(waiting.pid, stat._replace(start_ticks=stat.start_ticks - 1, **changes))  # type: ignore[arg-type]
    assert end_of(waiting) == 0


def test_check_goes_on_without_it() -> None:
    before = set(descendants(os.getpid()))
    with watchdog_process() as watchdog:
        (pid,) = set(descendants(os.getpid())) - before
        os.kill(pid, signal.SIGKILL)
        until(lambda: state(pid) == "Z")
        watchdog.watch(os.getpid())
        watchdog.watch(pid)
