"""A check that something goes wrong in at its end, or that is stopped: no verdict is lost, nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest

from profiler.__main__ import main
from profiler.check.modes import finish
from profiler.check.outputs import history
from profiler.check.outputs.write import print_result
from profiler.core.errors import ProfilerError
from profiler.core.procfs import is_alive, process_tree
from tests.check.speed.programs import ROOT
from tests.commands.check_programs import (
    QUICK_CHECK,
    change_syncs,
    check_report,
    git,
    make_repository,
    train,
    train_command,
)

CRASHES = """
import os, sys, time
from profiler import marks
before = len(os.listdir("starts"))
open(f"starts/{os.getpid()}", "w").close()
if before >= 4:
    print("no memory left")
    sys.exit(5)
while True:
    sum(range(2000))
    marks.step()
"""


def full(*_: object, **__: object) -> NoReturn:
    raise ProfilerError("cannot write it: No space left on device")


def test_reports_that_cannot_be_written_cost_a_line(
    baseline: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(finish, "write_all", full)
    monkeypatch.setattr(finish, "append_summary", full)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    change_syncs(1)
    assert main([*baseline, "--", *train()]) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].startswith("FAIL")
    assert shown.err.strip().splitlines()[-2:] == [
        "not all reports were written: cannot write it: No space left on device",
        "the summary of the job was not written: cannot write it: No space left on device",
    ]
    assert check_report()["state"] == "FAIL", "the record is written where its page cannot be"


@pytest.mark.parametrize("what", ["check.json", "history"])
def test_a_record_that_cannot_be_written_is_an_error_behind_the_verdict(
    baseline: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    if what == "history":
        monkeypatch.setattr(history, "append", full)
    else:
        monkeypatch.setattr(finish, "write_all", full)
        monkeypatch.setattr(finish, "write_text", full)
    assert main([*baseline, "--set", "history=h.jsonl", "--", *train()]) == 2
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0].startswith("PASS")
    assert "error: cannot write it: No space left on device" in shown.err.splitlines()


def test_a_reader_who_is_gone_changes_no_verdict(baseline: list[str]) -> None:
    words = [sys.executable, "-m", "profiler", *baseline, "--", *train()]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.communicate()[1] is not None
    assert process.returncode == 0
    assert check_report()["state"] == "PASS"


def test_rounds_before_a_crash_are_kept(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("crash.py").write_text(CRASHES)
    Path("starts").mkdir()
    command = f"{sys.executable} crash.py"
    assert main(["check", command, command, "--out", "out"]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert "exited with 5: no memory left" in last
    assert last.endswith("the 2 rounds measured before are kept in out/rounds.json")
    kept = json.loads(Path("out/rounds.json").read_text())
    assert [one["number"] for one in kept["rounds"]] == [1, 2]


def started(*words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", QUICK_CHECK, *words]
    return subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=environment)


def until_it_says(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    while words not in (line := process.stderr.readline()):
        assert line, "it ended"


def below(process: subprocess.Popen[str], number: int) -> list[int]:
    """Its processes, once they are so many."""
    until = time.monotonic() + 120
    while len(found := process_tree(process.pid)) < number:
        assert time.monotonic() < until
    return found


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
    ],
)
def test_a_signal_during_rounds_leaves_reports_and_nothing_else(here: Path, number: signal.Signals, code: int) -> None:
    make_repository("train.py")
    process = started("--against", "HEAD", "--out", "out", "--", *train())
    until_it_says(process, "round 2")
    programs = below(process, 3)
    process.send_signal(number)
    process.communicate()
    assert process.returncode == code
    assert not [pid for pid in programs if is_alive(pid)]
    assert len(git("worktree", "list").splitlines()) == 1
    assert check_report()["state"] == "INCONCLUSIVE"


@pytest.mark.slow
def test_an_interrupt_before_anything_was_measured_reports_no_counters(here: Path) -> None:
    process = started(train_command(), train_command(), "--set", "limits.syncs=1", "--out", "out")
    until_it_says(process, "round 1")
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    found = check_report()
    assert (found["state"], found["counters"], found["notes"]) == ("INCONCLUSIVE", None, [])


def test_a_signal_while_it_counts_ends_the_program(baseline: list[str]) -> None:
    Path("train.py").write_text("import time\nwhile True: time.sleep(1)\n")
    process = started(*baseline[1:], "--", *train())
    until_it_says(process, "counting")
    programs = below(process, 2)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 143
    assert not [pid for pid in programs if is_alive(pid)]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_signal_while_the_result_is_printed_waits_for_the_reports(
    baseline: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
    code: int,
) -> None:
    def print_later(*words: Any, **options: Any) -> None:
        os.kill(os.getpid(), number)
        print_result(*words, **options)

    monkeypatch.setattr(finish, "print_result", print_later)
    assert main([*baseline, "--", *train()]) == code
    assert capsys.readouterr().out.startswith("PASS")
    assert check_report()["state"] == "PASS"


@pytest.mark.slow
def test_a_signal_while_the_revision_is_made_ready_removes_it(here: Path) -> None:
    """Git is left to end what it was told: here it checks out a file, until the test lets it."""
    marker, gate = here / "checking-out", here / "gate"
    os.mkfifo(gate)
    Path(".gitattributes").write_text("*.bin filter=held\n")
    Path("data.bin").write_text("data")
    make_repository("train.py", ".gitattributes", "data.bin")
    git("config", "filter.held.smudge", f"touch {marker}; cat {gate}")
    process = started("--against", "HEAD", "--out", "out", "--", *train())
    until = time.monotonic() + 120
    while not marker.exists():
        assert time.monotonic() < until
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    gate.write_text("")
    process.communicate()
    assert process.returncode == 143
    assert len(git("worktree", "list").splitlines()) == 1
    assert not (here / "out").exists()


def test_an_error_is_annotated_and_summed_up_in_a_job_of_github(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(here / "summary.md"))
    monkeypatch.setenv("GITHUB_ACTIONS", "false")
    assert main(["check", "--set", "detect=100%"]) == 2
    assert "::error" not in capsys.readouterr().out
    assert not (here / "summary.md").exists()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for words in (["a"], ["--bogus"]):
        assert main(["check", *words]) == 2
        shown = capsys.readouterr()
        line = shown.err.removeprefix("error: ").strip()
        assert shown.out.splitlines() == [f"::error::{line}"]
    assert len((here / "summary.md").read_text().splitlines()) == 2


def test_a_ci_job_does_not_update_its_baseline(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value, code in (("true", 2), ("1", 2), ("false", 0)):
        monkeypatch.setenv("CI", value)
        assert main(["check", "--baseline", "b.json", "--update", "--", *train()]) == code
        assert Path("b.json").exists() == (code == 0)
