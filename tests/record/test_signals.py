"""Each signal reaches the recorded program once, however it was sent, and the exit code is the program's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from profiler.__main__ import main
from profiler.core.procfs import STOPPED_STATES, descendants, is_alive, read_stat
from profiler.record.target import PASSED_ON, Target, Witness
from profiler.report import write
from profiler.run.load import load
from tests.fakes.programs import ROOT, command_line, spec, start

pytestmark = pytest.mark.usefixtures("importable")

PYTHON = sys.executable

COUNTING = """
import os, signal, sys, time
got, answered = [], []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: got.append(number))
signal.signal(signal.SIGUSR1, lambda *_: answered.append(1))
if sys.argv[1:] == ["own-group"]:
    os.setpgid(0, 0)
print("ready", flush=True)
while not got: time.sleep(0.01)
os.kill(os.getppid(), signal.SIGUSR1)
while not answered: time.sleep(0.01)
print(*got, flush=True)
sys.exit(42)
"""
"""Prints the signals that it got. It sends one of its own to the recorder, which passes it on behind all others."""


def started(folder: Path, *words: str, program: str = COUNTING) -> subprocess.Popen[str]:
    """Record `program`, and return once it handles signals."""
    options = ("--marks-only", "--level", "light", "--out", folder / "run")
    process = start("run", *options, "--", PYTHON, "-c", program, *words)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def to_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """As `kill -- -PGID`, CI runners and torchrun do."""
    os.killpg(process.pid, number)


def to_recorder(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """As `docker stop` and `timeout --foreground` do."""
    process.send_signal(number)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop the recorder, so that all signals of the block have been sent before it looks at the first one."""
    os.kill(pid, signal.SIGSTOP)
    while (stat := read_stat(pid)) and stat.state not in STOPPED_STATES:
        pass
    yield
    os.kill(pid, signal.SIGCONT)


def to_each(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """As systemd, Slurm and `pkill -f` do."""
    with stopped(process.pid):
        for pid in (process.pid, *descendants(process.pid)):
            os.kill(pid, number)


def twice(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """As `timeout` does: the child, then the group."""
    with stopped(process.pid):
        process.send_signal(number)
        os.killpg(process.pid, number)


slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("number", "send"),
    [
        (signal.SIGTERM, to_group),
        (signal.SIGTERM, to_each),
        (signal.SIGTERM, twice),
        pytest.param(signal.SIGTERM, to_recorder, marks=slow),
        pytest.param(signal.SIGINT, to_group, marks=slow),
        pytest.param(signal.SIGINT, to_recorder, marks=slow),
        pytest.param(signal.SIGINT, to_each, marks=slow),
        pytest.param(signal.SIGHUP, to_group, marks=slow),
        pytest.param(signal.SIGHUP, to_recorder, marks=slow),
        pytest.param(signal.SIGHUP, to_each, marks=slow),
    ],
)
def test_a_signal_arrives_once(tmp_path: Path, number: signal.Signals, send: object) -> None:
    process = started(tmp_path)
    assert callable(send)
    send(process, number)
    output, errors = process.communicate(timeout=60)
    assert output == f"{int(number)}\n", errors
    assert process.returncode == 42
    assert load(tmp_path / "run").info.state == "interrupted"


def test_a_program_that_left_the_group_gets_what_was_sent_to_the_group(tmp_path: Path) -> None:
    """A trainer may make a group of its own, to end its workers with; a shell's job would have no other."""
    process = started(tmp_path, "own-group")
    os.killpg(process.pid, signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert (output, process.returncode) == (f"{int(signal.SIGTERM)}\n", 42), errors


@contextmanager
def ignored(number: signal.Signals) -> Iterator[None]:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_a_program_may_handle_what_its_starter_ignores(tmp_path: Path) -> None:
    """nohup ignores SIGHUP, and a shell ignores SIGINT for what it starts in the background."""
    with ignored(signal.SIGHUP):
        process = started(tmp_path)
    to_recorder(process, signal.SIGHUP)
    output, errors = process.communicate(timeout=60)
    assert (output, process.returncode) == (f"{int(signal.SIGHUP)}\n", 42), errors


IGNORING = """
import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: sys.exit())
print("ready", flush=True)
signal.pause()
"""


def test_a_signal_that_the_program_is_started_to_ignore_does_not_interrupt_the_run(tmp_path: Path) -> None:
    with ignored(signal.SIGTERM):
        process = started(tmp_path, program=IGNORING)
    to_group(process, signal.SIGTERM)
    to_recorder(process, signal.SIGUSR1)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert load(tmp_path / "run").info.state == "complete"


def test_a_signal_that_comes_while_the_program_is_started_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is not in the group yet when Ctrl-C reaches the group."""
    with Target(spec(tmp_path, "sleep", "60")) as target:
        (tmp_path / "run").mkdir()
        start_program = subprocess.Popen

        def interrupted(*words: object, **options: object) -> object:
            for pid in (os.getpid(), pid_of(target._witness)):
                os.kill(pid, signal.SIGTERM)
            return start_program(*words, **options)  # type: ignore[call-overload]

        monkeypatch.setattr(subprocess, "Popen", interrupted)
        target.start("/bin/sleep")
        target.wait()
    assert target.exit_code == -signal.SIGTERM


def test_equal_signals_are_sent_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel merges equal signals that the program has not handled yet."""
    done: list[str] = []
    (tmp_path / "run").mkdir()
    with Target(spec(tmp_path, "sleep", "60")) as target:
        target.start("/bin/sleep")
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR1):
            target._note(number, None)
        monkeypatch.setattr(time, "sleep", lambda _: done.append("pause"))
        monkeypatch.setattr(target, "_send", lambda number: done.append(signal.Signals(number).name))
        target._pass_on()
        target.kill()
    assert done == ["SIGUSR1", "SIGUSR2", "pause", "SIGUSR1"]


def test_a_second_ctrl_c_during_the_summary_keeps_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "print_summary", lambda *_: signal.raise_signal(signal.SIGTERM))
    words = ["run", "--marks-only", "--level", "light", "--out", str(tmp_path / "run"), "--", "sh", "-c", "exit 42"]
    assert main(words) == 42


def test_kill_9_of_the_group_leaves_nothing(tmp_path: Path) -> None:
    process = started(tmp_path)
    pids = descendants(process.pid)
    assert len(pids) == 2, "the program and the witness"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline


SHELL = """
for round in 1 2; do
    "$@"
    echo "round $round ended"
done
"""


def test_a_shell_ends_its_loop_where_ctrl_c_ended_the_program(tmp_path: Path) -> None:
    waiting = (PYTHON, "-c", "import signal; print('ready', flush=True); signal.pause()")
    argv = command_line("run", "--marks-only", "--out", tmp_path / "run", "--", *waiting)
    process = subprocess.Popen(
        ["bash", "-c", SHELL, "bash", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - see tests.fakes.programs
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert "ended" not in output
    assert process.returncode == -signal.SIGINT


# ---------------------------------------------------------------- the witness


@pytest.fixture
def witness() -> Iterator[Witness]:
    witness = Witness(["python", "train.py"])
    yield witness
    witness.end()


def pid_of(witness: Witness) -> int:
    assert witness._process is not None
    return witness._process.pid


def test_the_witness_reports_each_signal_once(witness: Witness) -> None:
    assert witness.seen() == set()
    for number in PASSED_ON:
        os.kill(pid_of(witness), number)
    assert witness.seen() == set(PASSED_ON)
    assert witness.seen() == set()


def test_a_witness_that_was_killed_has_seen_nothing(witness: Witness) -> None:
    os.kill(pid_of(witness), signal.SIGKILL)
    assert witness.seen() == set()
    assert witness.seen() == set()


def test_the_command_line_of_the_witness_ends_with_the_programs(witness: Witness) -> None:
    witness.seen()  # it runs now
    words = Path(f"/proc/{pid_of(witness)}/cmdline").read_bytes().split(b"\0")
    assert words[-3:] == [b"python", b"train.py", b""]
