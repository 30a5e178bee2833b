"""pip and what it starts: ended with the check, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profiler.check.worktree import pip
from profiler.core.errors import ProfilerError
from profiler.core.procfs import is_alive

BUILD = (
    "import os, subprocess, sys, time\n"
    "own = [sys.executable, '-c', 'import os, sys, time; open(sys.argv[1], \"w\").write(str(os.getpid()) + \"!\");'\n"
    "       'time.sleep(600)']\n"
    "subprocess.Popen([*own, 'below'])\n"
    "subprocess.Popen([*own, 'session'], start_new_session=True)\n"
    "subprocess.Popen(['sh', '-c', '\"$@\" & exit', 'sh', *own, 'orphan'])\n"
    "open('root', 'w').write(str(os.getpid()) + '!')\n"
    "time.sleep(600)\n"
)
"""What a pip that builds may have: a child, one in a session of its own, and one that has lost its parent."""
CHECK = (
    "import sys; from pathlib import Path; from profiler.check.worktree import pip\n"
    "here = Path(sys.argv[1])\n"
    "try: pip._run([sys.executable, '-c', sys.argv[2]], here, here / 'log', 'cannot')\n"
    "except KeyboardInterrupt: print('over', flush=True); sys.stdin.read()\n"
)
PATIENCE_S = 60.0


def pids(folder: Path) -> list[int]:
    """Of all that runs, once it runs."""
    until = time.monotonic() + PATIENCE_S
    files = [folder / name for name in ("root", "below", "session", "orphan")]
    while time.monotonic() < until:
        if all(file.exists() and file.read_text().endswith("!") for file in files):
            return [int(file.read_text()[:-1]) for file in files]
        time.sleep(0.02)
    raise AssertionError(f"started: {[file.name for file in files if file.exists()]}, {(folder / 'log').read_text()}")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_all_of_it_ends_with_the_check(tmp_path: Path, number: signal.Signals) -> None:
    words = [sys.executable, "-c", CHECK, str(tmp_path), BUILD]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as check:
        running = pids(tmp_path)
        assert all(map(is_alive, running))
        check.send_signal(number)
        if number == signal.SIGINT:
            assert check.stdout is not None
            assert check.stdout.readline() == b"over\n"
            assert not any(map(is_alive, running)), "it did not wait for their end"
    until = time.monotonic() + PATIENCE_S
    while (living := [pid for pid in running if is_alive(pid)]) and time.monotonic() < until:
        time.sleep(0.02)
    for pid in living:
        os.kill(pid, signal.SIGKILL)
    assert living == []


def test_ctrl_c_reaches_us_alone(tmp_path: Path) -> None:
    """As a terminal sends it: to the whole group. pip must not see it, and clean up by its own lights."""
    pip._run([sys.executable, "-c", "import os; print(os.getpgrp(), os.getsid(0))"], tmp_path, tmp_path / "log", "")
    group, session = map(int, (tmp_path / "log").read_text().split())
    assert group == session != os.getsid(0)


def test_its_words_and_its_exit_code(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for code, said in (("print('out')", None), ("raise SystemExit('why')", "cannot: why"), ("exit(3)", "exit code 3")):
        log.unlink(missing_ok=True)
        words = [sys.executable, "-c", code]
        if said is None:
            pip._run(words, tmp_path, log, "cannot")
            assert log.read_text() == "out\n"
            continue
        with pytest.raises(ProfilerError, match=said):
            pip._run(words, tmp_path, log, "cannot")
    with pytest.raises(ProfilerError, match="exit code -9"):
        pip._run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], tmp_path, tmp_path / "9", "cannot")
    with pytest.raises(ProfilerError, match="cannot: /nowhere/python: No such file"):
        pip._run(["/nowhere/python"], tmp_path, log, "cannot")
