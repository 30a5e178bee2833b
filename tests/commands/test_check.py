"""`check` from the command line to its exit code, on small programs that mark their steps."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiler.__main__ import main
from profiler.check.model import CANDIDATE, Round
from profiler.check.speed import interleave as rounds
from tests.commands.checked import REPORTS, STEPPING, committed, git, quoted, said, train

# ---------------------------------------------------------------- counters against a file


def test_update_then_check_then_a_counter_that_rose(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--baseline", "b.json", "--update", "--", *train()]) == 0
    shown = capsys.readouterr()
    assert "written" in shown.out
    assert shown.err.splitlines()[:2] == ["counting: process 1 of 2", "counting: process 2 of 2"]
    before = Path("b.json").read_text()
    assert main(["check", "--baseline", "b.json", "--out", "same", "--", *train()]) == 0
    assert main(["check", "--baseline", "b.json", "--out", "more", "--", *train(2000, 4)]) == 1
    assert "syncs rose by 1 per step" in " ".join(capsys.readouterr().out.lower().split())
    assert main(["check", "--baseline", "b.json", "--out", "less", "--", *train(2000, 2)]) == 0
    assert "--update" in capsys.readouterr().out
    assert Path("b.json").read_text() == before
    assert {path.name for path in Path("same").iterdir() if path.is_file()} == REPORTS
    assert (said("same")["state"], said("more")["state"]) == ("PASS", "FAIL")


@pytest.mark.usefixtures("baseline")
def test_a_limit_lets_a_counter_rise_and_ignored_ones_gate_nothing() -> None:
    more = ["--", *train(2000, 4)]
    assert main(["check", "--baseline", "b.json", "--limit", "syncs=1", *more]) == 0
    assert main(["check", "--baseline", "b.json", "--limit", "syncs=10%", *more]) == 1
    assert main(["check", "--baseline", "b.json", "--ignore", "syncs", *more]) == 0
    assert main(["check", "--baseline", "b.json", "--limit", "syncs", *more]) == 2


@pytest.mark.usefixtures("baseline")
def test_an_update_that_loosens_needs_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
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


@pytest.mark.usefixtures("baseline")
def test_another_program_under_the_same_baseline_is_inconclusive() -> None:
    Path("other.py").write_text(STEPPING)
    command = [sys.executable, "other.py", "2000", "3"]
    assert main(["check", "--baseline", "b.json", "--out", "out", "--", *command]) == 3
    assert said()["state"] == "INCONCLUSIVE"
    assert main(["check", "--baseline", "b.json", "--inconclusive", "pass", "--", *command]) == 0


# ---------------------------------------------------------------- two programs by turns


def slow_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs run and are driven; how long the candidate's steps took is made up, so that the machine is out of it."""
    make = rounds.RoundRunner.run

    def slower(self: rounds.RoundRunner, number: int, kind: str) -> Round:
        one = make(self, number, kind)
        turns = (
            replace(turn, steps=tuple(1_000_000 * (4 if turn.side == CANDIDATE else 1) + at % 7 for _ in turn.steps))
            for at, turn in enumerate(one.blocks)
        )
        return replace(one, blocks=tuple(turns))

    monkeypatch.setattr(rounds.RoundRunner, "run", slower)


def test_steps_that_take_far_longer_fail_and_are_confirmed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_candidate(monkeypatch)
    monkeypatch.setattr("profiler.check.modes.sides.EXPLAIN_S", 0.5)
    options = ["--before", quoted(2000), "--after", quoted(2001), "--out", "out"]
    assert main(["check", *options]) == 1
    found = said()
    assert found["state"] == "FAIL"
    assert {path.name for path in Path("out").iterdir() if path.is_file()} == REPORTS
    assert any(path.name.endswith("control") for path in Path("out").iterdir()), "nothing was confirmed"
    assert any(path.name == "explained-candidate" for path in Path("out").iterdir())


@pytest.mark.slow
def test_a_stop_while_it_is_looked_where_the_time_goes_costs_no_verdict(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    slow_candidate(monkeypatch)
    monkeypatch.setattr("profiler.check.modes.sides.record_explanation", stop)
    assert main(["check", "--before", quoted(2000), "--after", quoted(2001), "--out", "out"]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("FAIL")
    assert "where the time of the base goes was not recorded: stopped" in shown.err
    assert said()["state"] == "FAIL"


def test_the_rounds_of_a_time_limit_are_few_and_said(here: Path) -> None:
    options = ["--before", quoted(), "--after", quoted(), "--max-seconds", "0.001", "--out", "out"]
    assert main(["check", *options]) == 3
    assert "time limit" in str(said()["sentence"]).lower()


def test_a_counter_that_rose_fails_whatever_the_times_say_and_its_job_shows_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(here / "summary.md"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    options = ["--before", quoted(2000, 3), "--after", quoted(2000, 4), "--max-rounds", "3", "--out", "out"]
    assert main(["check", *options]) == 1
    assert "FAIL" in (here / "summary.md").read_text()
    assert "::error" in capsys.readouterr().out
    assert "syncs" in str(said()["sentence"]).lower()


# ---------------------------------------------------------------- two runs, a revision


def test_two_runs_of_a_check_and_options_behind_them(here: Path) -> None:
    assert main(["check", "--baseline", "b.json", "--update", "--out", "a", "--", *train(2000, 3)]) == 0
    assert main(["check", "--baseline", "c.json", "--update", "--out", "b", "--", *train(2000, 4)]) == 0
    run_a, run_b = "a/counted-candidate-1", "b/counted-candidate-1"
    assert main(["check", run_a, run_a.replace("-1", "-2"), "--out", "same"]) == 0
    assert main(["check", run_a, run_b, "--out", "more"]) == 1
    assert "gated nothing" in str(said("more")) or "gates nothing" in str(said("more"))


def test_against_a_revision(here: Path) -> None:
    committed("train.py")
    Path("train.py").write_text(STEPPING.replace('"syncs", syncs', '"syncs", syncs + 1'))
    options = ["--against", "HEAD", "--max-rounds", "3", "--out", "out"]
    assert main(["check", *options, "--", *train()]) == 1
    found: dict[str, Any] = said()
    assert "syncs rose by 1 per step" in str(found["sentence"]).lower()
    assert len(git("worktree", "list").splitlines()) == 1
    assert str(found["candidate"]["commit"]).endswith("+changes")


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "nothing to check"),
        (["--", "train"], "nothing to compare the command to"),
        (["--baseline", "none.json", "--", *train()], "there is no baseline none.json"),
        (["--before", "a"], "go together"),
        (["--against", "HEAD"], "after --"),
        (["one"], "one is no recorded run: there is nothing of that name; a command goes after --"),
        ([".", "two"], ". is no recorded run: there is no run.json in it"),
        (["--baseline", "c.json", *train()], f"check --baseline c.json -- {quoted()}"),
        (["--against", "main", "train.py", "--lr", "1"], "train.py is no recorded run: put -- before a command"),
        (["--against", "main", "train.py", "--lr", "1"], "as in: check --against main -- train.py --lr 1"),
        (["one", "two", "--", "three"], "give one of"),
        (["--detect", "fast", "--before", "a", "--after", "b"], "detect"),
        (["--before", "no-such-program", "--after", "no-such-program"], "no such program"),
        (["--reason", "why", "--baseline", "b", "--", "x"], "--reason goes with --update"),
        (["--against", "HEAD", "--", *train()], "git"),
        (["one", "two"], "one"),
        (["--before", "a", "--after", "b", "--baseline", "b.json"], "--baseline goes with"),
        (["--baseline", "b.json", "--no-baseline", "--against", "HEAD", "--", "x"], "not both"),
        (["--baseline", "b.json", "--detect", "5%", "--", *train()], "--detect goes with --against or"),
        (["--before", "a", "--after", "b", "--link", "data"], "--link goes with --against"),
        (["--baseline", "b.json", "--update", "--max-rounds", "3", "--", *train()], "--max-rounds goes with"),
        (["--update", "--", *train()], "--update needs --baseline FILE (or baseline = FILE in"),
        (
            ["--before", "a", "--after", "b", "--limit", "sync=1"],
            "--limit sync: nothing counts that; did you mean syncs?",
        ),
        (
            ["--before", "a", "--after", "b", "--ignore", "would_snc"],
            "--ignore would_snc: nothing counts that; did you",
        ),
        (["--before", "a", "--after", "b", "--history", "none/h.jsonl"], "there is no folder"),
        (["--before", "a", "--after", "b", "--history", "train.py"], "train.py is no history"),
        (["--before", "a", "--after", "b", "--out", "."], "never overwritten"),
        (["--baseline", "none/b.json", "--update", "--", *train()], "there is no folder"),
        (["--det", "5%", "--before", "a", "--after", "b"], "--det"),
        (["--steps", "some", "--", *train()], "--steps"),
        (["--bogus"], "unrecognized arguments: --bogus (check"),
        (["--basline", "b.json", "--", *train()], "--basline; did you mean --baseline?"),
        (["--before", "a", "--after", "b", "--detct=5%"], "--detct=5%; did you mean --detect?"),
    ],
)
def test_one_line_and_exit_code_2(here: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str) -> None:
    assert main(["check", *words]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert line in lines[0]
    assert sorted(path.name for path in here.iterdir()) == ["train.py"], "something was run, or made"


@pytest.mark.parametrize(
    ("source", "patience", "line"),
    [
        ("import sys\nprint('no data')\nsys.exit(4)\n", "200", "exited with 4: no data"),
        ("from profiler import marks\nfor _ in range(30): marks.step()\n", "200", "more steps to train"),
        ("import time\nwhile True: time.sleep(1)\n", "1", "no step was seen"),
        ("import os\nos.kill(os.getpid(), 9)\n", "200", "signal 9"),
    ],
)
def test_programs_that_cannot_be_driven(
    here: Path, capsys: pytest.CaptureFixture[str], source: str, patience: str, line: str
) -> None:
    Path("bad.py").write_text(source)
    command = f"{sys.executable} bad.py"
    assert main(["check", "--before", command, "--after", command, "--patience", patience, "--out", "out"]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert line in last


def test_a_program_without_steps_is_an_error_that_says_how_to_mark_them(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("none.py").write_text("print('all done')\n")
    assert main(["check", "--baseline", "b.json", "--update", "--", sys.executable, "none.py"]) == 2
    assert "profiler.step()" in capsys.readouterr().err.strip().splitlines()[-1]
    assert main(["run", "--out", "run", "--", sys.executable, "none.py"]) == 0
    capsys.readouterr()
    assert main(["check", "run", "run"]) == 2
    assert "profiler.step()" in capsys.readouterr().err.strip().splitlines()[-1]
    assert not Path("b.json").exists()
