"""`check` from the command line to its exit code, on small programs that mark their steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from profiler.__main__ import main
from profiler.commands import _gate_found
from profiler.record.processes import family, is_alive
from profiler.record.turns import rounds
from tests.record.turns.programs import ROOT

STEPPING = """
import sys
from profiler import marks
amount, syncs = int(sys.argv[1]), int(sys.argv[2])
while True:
    for number in range(amount):
        number * number
    marks.count("syncs", syncs)
    marks.step(tokens=5)
"""
REPORTS = {"check.json", "check.md", "check.html", "junit.xml", "check.sarif", "codequality.json"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a trainer in it; turns are short."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(rounds, "TURN_S", 0.002)
    (tmp_path / "train.py").write_text(STEPPING)
    return tmp_path


def train(amount: int = 2000, syncs: int = 3) -> list[str]:
    return [sys.executable, "train.py", str(amount), str(syncs)]


def quoted(*options: int) -> str:
    return " ".join(train(*options))


def said(out: str = "out") -> dict[str, object]:
    found: dict[str, object] = json.loads((Path(out) / "check.json").read_text())
    return found


# ---------------------------------------------------------------- counters against a file


def test_update_then_check_then_a_counter_that_rose(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--baseline", "b.json", "--update", "--", *train()]) == 0
    assert "written" in capsys.readouterr().out
    before = Path("b.json").read_text()
    assert main(["check", "--baseline", "b.json", "--out", "same", "--", *train()]) == 0
    assert main(["check", "--baseline", "b.json", "--out", "more", "--", *train(2000, 4)]) == 1
    assert "syncs rose by 1 per step" in " ".join(capsys.readouterr().out.lower().split())
    assert main(["check", "--baseline", "b.json", "--out", "less", "--", *train(2000, 2)]) == 0
    assert "--update" in capsys.readouterr().out
    assert Path("b.json").read_text() == before
    assert {path.name for path in Path("same").iterdir() if path.is_file()} == REPORTS
    assert (said("same")["state"], said("more")["state"]) == ("PASS", "FAIL")


def test_a_limit_lets_a_counter_rise_and_ignored_ones_gate_nothing(here: Path) -> None:
    assert main(["check", "--baseline", "b.json", "--update", "--", *train()]) == 0
    more = ["--", *train(2000, 4)]
    assert main(["check", "--baseline", "b.json", "--limit", "syncs=1", *more]) == 0
    assert main(["check", "--baseline", "b.json", "--limit", "syncs=10%", *more]) == 1
    assert main(["check", "--baseline", "b.json", "--ignore", "syncs", *more]) == 0
    assert main(["check", "--baseline", "b.json", "--limit", "syncs", *more]) == 2


def test_an_update_that_loosens_needs_a_reason(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--baseline", "b.json", "--update", "--", *train()]) == 0
    before = Path("b.json").read_text()
    assert main(["check", "--baseline", "b.json", "--update", "--", *train(2000, 5)]) == 2
    assert "needs --reason" in capsys.readouterr().err
    assert Path("b.json").read_text() == before
    reason = "gradients are checked now"
    assert main(["check", "--baseline", "b.json", "--update", "--reason", reason, "--", *train(2000, 5)]) == 0
    assert reason in Path("b.json").read_text()


def test_a_job_never_updates_itself(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert main(["check", "--baseline", "b.json", "--update", "--", *train()]) == 2
    assert not Path("b.json").exists()


def test_another_program_under_the_same_baseline_is_inconclusive(here: Path) -> None:
    assert main(["check", "--baseline", "b.json", "--update", "--", *train()]) == 0
    Path("other.py").write_text(STEPPING)
    command = [sys.executable, "other.py", "2000", "3"]
    assert main(["check", "--baseline", "b.json", "--out", "out", "--", *command]) == 3
    assert said()["state"] == "INCONCLUSIVE"
    assert main(["check", "--baseline", "b.json", "--inconclusive", "pass", "--", *command]) == 0


# ---------------------------------------------------------------- two programs by turns


def test_far_more_work_fails_and_is_confirmed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gate_found, "EXPLAIN_S", 0.5)
    options = ["--before", quoted(2000), "--after", quoted(8000), "--out", "out"]
    assert main(["check", *options]) == 1
    found = said()
    assert found["state"] == "FAIL"
    assert {path.name for path in Path("out").iterdir() if path.is_file()} == REPORTS
    assert any(path.name.endswith("control") for path in Path("out").iterdir()), "nothing was confirmed"


def test_a_counter_that_rose_fails_whatever_the_times_say(here: Path) -> None:
    options = ["--before", quoted(2000, 3), "--after", quoted(2000, 4), "--max-rounds", "3", "--out", "out"]
    assert main(["check", *options]) == 1
    assert "syncs" in str(said()["sentence"]).lower()


def test_the_rounds_of_a_time_limit_are_few_and_said(here: Path) -> None:
    options = ["--before", quoted(), "--after", quoted(), "--max-seconds", "0.001", "--out", "out"]
    assert main(["check", *options]) == 3
    assert "time limit" in str(said()["sentence"]).lower()


def test_summary_and_annotations_of_a_job(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(here / "summary.md"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    options = ["--before", quoted(2000, 3), "--after", quoted(2000, 4), "--max-rounds", "3", "--out", "out"]
    assert main(["check", *options]) == 1
    assert "FAIL" in (here / "summary.md").read_text()
    assert "::error" in capsys.readouterr().out


# ---------------------------------------------------------------- two runs, a revision


def test_two_runs_of_a_check_and_options_behind_them(here: Path) -> None:
    assert main(["check", "--baseline", "b.json", "--update", "--out", "a", "--", *train(2000, 3)]) == 0
    assert main(["check", "--baseline", "c.json", "--update", "--out", "b", "--", *train(2000, 4)]) == 0
    run_a, run_b = "a/counted-candidate-1", "b/counted-candidate-1"
    assert main(["check", run_a, run_a.replace("-1", "-2"), "--out", "same"]) == 0
    assert main(["check", run_a, run_b, "--out", "more"]) == 1
    assert "gated nothing" in str(said("more")) or "gates nothing" in str(said("more"))


def git(*words: str) -> None:
    named = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *named, *words], check=True, capture_output=True)


def test_against_a_revision(here: Path) -> None:
    git("init", "-q", "-b", "main")
    git("add", "train.py")
    git("commit", "-q", "-m", "first")
    Path("train.py").write_text(STEPPING.replace('"syncs", syncs', '"syncs", syncs + 1'))
    options = ["--against", "HEAD", "--max-rounds", "3", "--out", "out"]
    assert main(["check", *options, "--", *train()]) == 1
    found = said()
    assert "syncs rose by 1 per step" in str(found["sentence"]).lower()
    listed = subprocess.run(["git", "worktree", "list"], check=True, capture_output=True, text=True).stdout
    assert len(listed.splitlines()) == 1, listed


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "nothing to check"),
        (["--", "train"], "nothing to hold the command against"),
        (["--baseline", "none.json", "--", *train()], "there is no baseline none.json"),
        (["--before", "a"], "go together"),
        (["--against", "HEAD"], "after --"),
        (["one"], "two runs"),
        (["one", "two", "--", "three"], "give one of"),
        (["--detect", "fast", "--before", "a", "--after", "b"], "detect"),
        (["--before", "no-such-program", "--after", "no-such-program"], "no such program"),
        (["--reason", "why", "--baseline", "b", "--", "x"], "--reason goes with --update"),
        (["--against", "HEAD", "--", *train()], "git"),
        (["one", "two"], "one"),
    ],
)
def test_one_line_and_exit_code_2(here: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str) -> None:
    assert main(["check", *words]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert line in lines[0]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import sys\nprint('no data')\nsys.exit(4)\n", "exited with 4: no data"),
        ("from profiler import marks\nfor _ in range(30): marks.step()\n", "give it more steps"),
        ("import time\nwhile True: time.sleep(1)\n", "no step was seen"),
        ("import os\nos.kill(os.getpid(), 9)\n", "signal 9"),
    ],
)
def test_programs_that_cannot_be_driven(here: Path, capsys: pytest.CaptureFixture[str], source: str, line: str) -> None:
    Path("bad.py").write_text(source)
    command = f"{sys.executable} bad.py"
    assert main(["check", "--before", command, "--after", command, "--patience", "2", "--out", "out"]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert line in last


def test_ctrl_c_leaves_reports_and_no_process(here: Path) -> None:
    words = [sys.executable, "-m", "profiler", "check", "--before", quoted(), "--after", quoted(), "--out", "out"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert process.stderr is not None
    while "round 2" not in (line := process.stderr.readline()):
        assert line, "it ended"
    until, below = time.monotonic() + 60, [process.pid]
    while len(below) < 3:
        assert time.monotonic() < until
        below = family(process.pid)
    process.send_signal(signal.SIGINT)
    process.stderr.read()
    assert process.wait() == 130
    assert not [pid for pid in below if is_alive(pid)]
    assert said()["state"] == "INCONCLUSIVE"
