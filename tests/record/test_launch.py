"""Recording end to end: exit codes, signals, kill -9 of either side, a target's own modules, collectors that fail."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from profiler.analyse.intervals import covered_within, union
from profiler.analyse.sampling.stacks import Stacks
from profiler.analyse.window import measured_window
from profiler.core.errors import ProfilerError
from profiler.record import collectors as collectors_module
from profiler.record import target
from profiler.record.collectors import CollectorSet, Context
from profiler.record.launch import record
from profiler.run.load import load
from profiler.run.model import CollectorStatus, Run, RunSpec
from profiler.run.store import RECORDER, RunWriter
from tests.fakes.programs import (
    MARKED,
    command_line,
    damage,
    finished,
    output,
    read_rounds,
    script,
    spec,
    start,
)

PYTHON = sys.executable


SAMPLED = (
    MARKED.replace("import sys,", "import itertools, os, sys,")
    .replace(
        "marks.open_step()", "while not os.path.exists(sys.argv[2]): time.sleep(0.001)\nlast = None\nmarks.open_step()"
    )
    .replace("in range(int(sys.argv[1])):", "in itertools.count():")
    + """
    if last is None and os.path.exists(sys.argv[3]):
        last = round + int(sys.argv[1])
    if round == last:
        break
"""
)
"""Does the same as MARKED, but begins when the file of its second argument exists, and does its rounds after the file
of its third argument exists."""


@pytest.mark.usefixtures("importable")
def test_a_marked_program_at_level_standard(tmp_path: Path) -> None:
    path, begin, end, looks = script(tmp_path, SAMPLED), tmp_path / "begin", tmp_path / "end", []
    sampled: set[str] = set()

    def let_it_run() -> None:
        """Let the program begin in one sampling window, and go on until another that began meanwhile is over."""
        looks.append(1)
        for log in (tmp_path / "run" / RECORDER).glob("window-*-all.log"):
            with suppress(OSError):  # the log of a window goes when that is over
                if b"Sampling" in log.read_bytes():
                    sampled.add(log.name)
        is_hopeless = len(looks) > 300  # where ptrace is forbidden there may be no log to be seen
        if sampled or is_hopeless:
            begin.touch()
        if len(sampled) > 2 or is_hopeless:
            end.touch()

    argv = (PYTHON, str(path), "60", str(begin), str(end))
    info = record(spec(tmp_path, *argv, level="standard", collectors=None, timeout=120), watch=let_it_run)
    run = load(tmp_path / "run")
    rounds = output(tmp_path).count("round")
    assert replace(run.info, facts={}) == info
    assert (info.state, info.exit_code, info.label) == ("complete", 0, "train")
    assert run.info.facts == {"device": "cpu", "step": "round"}
    assert run.problems == ()
    assert rounds > 60
    assert run.steps["index"].tolist() == list(range(rounds))
    assert run.steps["tokens"].sum() == 10 * rounds
    assert {run.names[number] for number in run.regions["name"]} >= {"log", "tokenize"}
    assert info.begin < run.steps["begin"][0]
    assert info.end is not None
    assert run.steps["end"][-1] < info.end
    assert {status.name: status.state for status in info.collectors}["host"] == "ok"
    check_stacks(run, path)


def check_stacks(run: Run, path: Path) -> None:
    """py-spy's share of each function agrees with the regions around its calls."""
    (status,) = (status for status in run.info.collectors if status.name == "stacks")
    if status.code == "ptrace-forbidden":
        pytest.skip(status.reason)
    assert status.state == "ok", status
    assert (status.cost_s or 0) > 0
    begin, end = run.steps["begin"][0], run.steps["end"][-1]
    inside = run.stacks[(run.stacks["begin"] < end) & (run.stacks["end"] > begin)]
    assert set(inside["tid"].tolist()) == {run.steps["tid"][0]}, "native thread ids"
    lengths = np.minimum(inside["end"], end) - np.maximum(inside["begin"], begin)
    # how much the samples cover depends on the machine: a slow one is long between two windows
    assert lengths.sum() <= 1.01 * (end - begin), "the spans of one thread do not overlap"
    # the window that began before the steps has samples of half a second, of which reports use none either
    stacks = Stacks(run)
    samples, ns = stacks.weighted_samples(measured_window(run))
    assert len(samples) > 0, "a sampling window began and ended while the program took steps"
    text = SAMPLED.splitlines()
    lines = [
        next((f.line for f in run.stack_frames[n] if (f.file, f.function) == (str(path), "<module>")), 0)
        for n in samples["stack"]
    ]
    in_tokenize, in_log = (np.array(lines) == text.index(f"        busy({s})") + 1 for s in ("0.004", "0.002"))
    in_either = in_tokenize | in_log
    share = ns[in_tokenize].sum() / ns[in_either].sum()
    # on a busy machine a region may take any part of a round: what it took while samples were taken is what counts
    spans = np.maximum(samples["begin"], begin)[in_either], np.minimum(samples["end"], end)[in_either]
    regions = (run.regions[run.regions["name"] == run.names.index(name)] for name in ("tokenize", "log"))
    tokenize, log = (covered_within(union(rows["begin"], rows["end"]), *spans).sum() for rows in regions)
    recorded = tokenize / (tokenize + log)
    # py-spy waits exponential times between samples: the times vary as much again as the places
    count = stacks.sample_count(samples[in_either], ns[in_either])
    error = 0.05 + 3.5 * math.sqrt(2 * recorded * (1 - recorded) / count)
    assert abs(share - recorded) < error, f"tokenize has {share:.2f} of {count:.0f} samples, not {recorded:.2f}"


@pytest.mark.parametrize(
    ("code", "options", "state", "exit_code"),
    [
        ("import sys; sys.exit(3)", {}, "failed", 3),
        ("import os; os.kill(os.getpid(), 9)", {}, "failed", -9),
        ("while True: pass", {"timeout": 0.2}, "interrupted", -signal.SIGTERM),
        ("while True: pass", {"enough": lambda: True}, "complete", 0),
    ],
    ids=["exit code", "signal", "timeout", "enough"],
)
def test_how_the_target_ends_is_in_the_manifest(
    tmp_path: Path, code: str, options: dict[str, Any], state: str, exit_code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    timeout = options.get("timeout")
    info = record(spec(tmp_path, PYTHON, "-c", code, timeout=timeout), enough=options.get("enough"))
    assert (info.state, info.exit_code) == (state, exit_code)
    assert load(tmp_path / "run").info == info
    assert ("(timeout)" in capfd.readouterr().err) is (timeout is not None)


@pytest.mark.parametrize("argv", ["no-such-program", "./not-executable.py", ".", "./no-program"])
def test_a_target_that_cannot_start_leaves_nothing(tmp_path: Path, argv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("not-executable.py").touch()
    Path("no-program").write_bytes(b"\x7fELF is not all of a program")
    Path("no-program").chmod(0o755)
    with pytest.raises(ProfilerError, match="cannot start") as caught:
        record(spec(tmp_path, argv))
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    with pytest.raises(ProfilerError):
        record(spec(tmp_path, argv))
    assert list((tmp_path / "run").iterdir()) == [], "an empty folder of the user stays"
    (tmp_path / "run" / ".gitignore").write_text("mine\n")
    with pytest.raises(ProfilerError):
        record(spec(tmp_path, argv))
    assert [path.read_text() for path in (tmp_path / "run").iterdir()] == ["mine\n"], "so does its .gitignore"


IGNORING = """
import signal, sys
for number in sys.argv[1:]:
    signal.signal(int(number), signal.SIG_IGN)
print("ready", flush=True)
while True: pass
"""
"""Ignores the signals that it is given."""


SAVING = """
import pathlib, signal, sys, time

def save(number, frame):
    print("saving", flush=True)
    until = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < until:
        pass
    pathlib.Path(sys.argv[2]).write_text("saved")
    sys.exit(7)

signal.signal(int(sys.argv[3]), save)
print("ready", flush=True)
while True: pass
"""
"""Writes a file that takes a while when it gets a signal, as a trainer writes its checkpoint."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little time before a program that was stopped is killed."""
    monkeypatch.setattr(target, "KILL_AFTER_S", 0.2)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_checkpoint_that_takes_long_is_written(tmp_path: Path, number: signal.Signals) -> None:
    sent = []

    def interrupt() -> None:
        if not sent and output(tmp_path):
            sent.append(os.kill(os.getpid(), number))

    checkpoint = tmp_path / "checkpoint"
    info = record(spec(tmp_path, PYTHON, "-c", SAVING, "1.5", str(checkpoint), str(int(number))), watch=interrupt)
    assert (info.state, info.exit_code) == ("interrupted", 7)
    assert checkpoint.read_text() == "saved"


@pytest.mark.usefixtures("impatient")
def test_ctrl_c_counts_after_enough_was_recorded(tmp_path: Path) -> None:
    def interrupt() -> None:
        if output(tmp_path):
            os.kill(os.getpid(), signal.SIGINT)

    argv = (PYTHON, "-c", IGNORING, "15")
    info = record(spec(tmp_path, *argv), watch=interrupt, enough=lambda: bool(output(tmp_path)))
    assert info.state == "interrupted", "the user ended it"


@pytest.mark.usefixtures("impatient")
def test_a_target_that_ignores_the_stop_of_a_timeout_is_killed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the target inherits it, however late it starts
    try:
        info = record(spec(tmp_path, PYTHON, "-c", "while True: pass", timeout=0.5))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (info.state, info.exit_code) == ("interrupted", -signal.SIGKILL)
    assert "is killed: it goes on 0.2 s after SIGTERM" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "handlers are restored"


def test_an_error_of_ours_leaves_a_finished_run_and_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError

    def recorded(folder: Path, watch: Any = None) -> tuple[str, int | None]:
        with pytest.raises(ZeroDivisionError):
            record(spec(folder, PYTHON, "-c", "while True: pass"), watch=watch)
        info = load(folder / "run").info
        return info.state, info.exit_code

    assert recorded(tmp_path / "watch", fail) == ("interrupted", -signal.SIGKILL)
    monkeypatch.setattr(CollectorSet, "start", fail)
    assert recorded(tmp_path / "start") == ("interrupted", -signal.SIGKILL)


class Broken:
    """A collector that fails where `at` says."""

    name = "broken"
    levels = ("light", "standard", "full")
    start_order = 1
    at = ""

    def _call(self, method: str) -> None:
        if self.at == method:
            raise RuntimeError(f"broken at\n{method}")

    def available(self) -> str | None:
        return "not here" if self.at == "available" else None

    def describe(self) -> dict[str, Any]:
        self._call("describe")
        return {}

    def start(self, context: Any) -> None:
        self._call("start")

    def stop(self) -> CollectorStatus:
        self._call("stop")
        return CollectorStatus(self.name, "ok")


@pytest.mark.parametrize(
    ("at", "state", "reason"),
    [
        ("available", "unavailable", "not here"),
        ("describe", "failed", "RuntimeError: broken at describe"),
        ("start", "failed", "RuntimeError: broken at start"),
        ("stop", "failed", "RuntimeError: broken at stop"),
    ],
)
def test_a_broken_collector_is_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, state: str, reason: str
) -> None:
    monkeypatch.setattr(collectors_module, "discover", lambda package: (Broken,))
    monkeypatch.setattr(Broken, "at", at)
    info = record(spec(tmp_path, PYTHON, "-c", "pass", collectors=None))
    assert info.state == "complete"
    assert [(status.state, status.reason) for status in info.collectors if status.name != "hooks"] == [(state, reason)]


def test_collectors_that_were_not_requested_have_that_status(tmp_path: Path) -> None:
    info = record(spec(tmp_path, PYTHON, "-c", "pass"))
    reasons = {status.name: status.reason for status in info.collectors if status.state == "off"}
    assert reasons == dict.fromkeys(("gpu", "host", "stacks"), "not asked for")
    with pytest.raises(ProfilerError, match="there is no collector nosuch: choose from environment, gpu"):
        record(spec(tmp_path / "b", PYTHON, "-c", "pass", collectors=("nosuch",)))
    assert not (tmp_path / "b").exists()


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_a_signal_to_the_recorder_reaches_the_target(tmp_path: Path, number: signal.Signals) -> None:
    process = start("run", "--out", tmp_path / "run", "--", PYTHON, script(tmp_path, MARKED), "100000")
    read_rounds(process, 3)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -number, errors
    run = load(tmp_path / "run")
    assert (run.info.state, damage(run)) == ("interrupted", [])
    assert run.info.exit_code in {-number, 130}
    if number == signal.SIGINT:  # Python runs its exit handlers: nothing is lost
        assert len(run.steps) >= 3


HANDLING = """
import signal, sys
received = []
for number in map(int, sys.argv[1:]):
    signal.signal(number, lambda number, _: received.append(number))
print("ready", flush=True)
for number in map(int, sys.argv[1:]):
    while number not in received: pass
    print("received", number, flush=True)
while len(sys.argv) == 1: pass
"""
"""Waits for each of the signals that it is given and ends; without any it runs until it is ended."""


def start_ready(folder: Path, *numbers: int) -> subprocess.Popen[str]:
    """HANDLING, recorded by a process of its own, once it handles `numbers`."""
    words = ["run", "--level", "light", "--out", folder / "run", "--", PYTHON, "-c", HANDLING, *map(str, numbers)]
    process = start(*words)
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        assert process.poll() is None
    return process


@pytest.mark.usefixtures("importable")
def test_signals_that_the_target_handles_do_not_end_the_run(tmp_path: Path) -> None:
    """Schedulers ask for a checkpoint so, and faulthandler is asked for the stacks."""
    numbers = [int(number) for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGWINCH)]
    process = start_ready(tmp_path, *numbers)
    assert process.stdout is not None
    for number in numbers:
        process.send_signal(number)
        assert process.stdout.readline() == f"received {number}\n"
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert load(tmp_path / "run").info.state == "complete"


@pytest.mark.usefixtures("importable")
def test_a_signal_that_the_target_dies_of_ended_it(tmp_path: Path) -> None:
    process = start_ready(tmp_path)
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGUSR1
    info = load(tmp_path / "run").info
    assert (info.state, info.exit_code) == ("interrupted", -signal.SIGUSR1)


TYPING_CTRL_C = """
import os, pty, sys, time
pid, terminal = pty.fork()
if pid == 0: os.execv(sys.argv[1], sys.argv[1:])
seen = b''
while b'ready' not in seen: seen += os.read(terminal, 100)
os.write(terminal, b'\\x03')
try:
    while True: seen += os.read(terminal, 1000)
except OSError: pass
print(seen.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
# Our signals come in the order in which they were noted: the answer to USR1 comes behind what came before it.
COUNTING = """
import os, signal
got, answers = [], []
signal.signal(signal.SIGINT, lambda *_: got.append(1))
signal.signal(signal.SIGUSR1, lambda *_: answers.append(1))
print('ready', flush=True)
while not got: pass
os.kill(os.getppid(), signal.SIGUSR1)
while not answers: pass
print('signals', len(got))
"""


@pytest.mark.usefixtures("importable")
def test_ctrl_c_at_a_terminal_reaches_the_target_once(tmp_path: Path) -> None:
    """The terminal signals its whole foreground: the recorder must not pass the signal on."""
    command = command_line("run", "--out", tmp_path / "run", "--", PYTHON, "-c", COUNTING)
    done = finished([PYTHON, "-c", TYPING_CTRL_C, *command])
    assert "signals 1" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0, "the target's own exit code"
    assert load(tmp_path / "run").info.state == "interrupted"


@pytest.mark.usefixtures("importable")
def test_kill_9_of_the_target(tmp_path: Path) -> None:
    process = start("run", "--out", tmp_path / "run", "--", PYTHON, script(tmp_path, MARKED), "100000")
    read_rounds(process, 60)  # beyond the quarter of a second that may be buffered
    source = next((tmp_path / "run").glob("source-*"))
    os.kill(json.loads((source / "source.json").read_text())["pid"], signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    run = load(tmp_path / "run")
    assert (run.info.state, run.info.exit_code) == ("failed", -9)
    assert len(run.steps) > 0
    assert len(run.samples) > 0


def test_collectors_start_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def kind(collector_name: str, order: int) -> type[Broken]:
        class Ordered(Broken):
            name = collector_name
            start_order = order

            def start(self, context: Any) -> None:
                started.append(self.name)

        return Ordered

    monkeypatch.setattr(collectors_module, "discover", lambda _: (kind("a", 2), kind("b", 0), kind("c", 1)))
    collectors = CollectorSet(RunSpec(("x",), tmp_path))
    collectors.start(Context(RunSpec(("x",), tmp_path), 1, cast("RunWriter", None)))
    collectors.stop()
    assert started == ["b", "c", "a"]
