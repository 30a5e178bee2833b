"""Options of `check` that mean nothing together or name what does not exist: one line, exit code 2, nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.__main__ import main
from tests.commands.check_programs import train, train_command

SIDES = ("--before", "a", "--after", "b")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "nothing to check"),
        (["--", "train"], "nothing to compare the command to"),
        (["--baseline", "none.json", "--", *train()], "there is no baseline none.json"),
        (["--before", "a"], "go together"),
        (["--against", "HEAD"], "after --"),
        (["one"], "there is no run one; a command goes after --"),
        ([".", "two"], ". is no recorded run: there is no run.json in it"),
        (["--baseline", "c.json", *train()], f"check --baseline c.json -- {train_command()}"),
        (["--against", "main", "train.py", "--lr", "1"], "train.py is no recorded run: put -- before a command"),
        (["--against", "main", "train.py", "--lr", "1"], "as in: check --against main -- train.py --lr 1"),
        (["one", "two", "--", "three"], "give one of"),
        (["--detect", "fast", *SIDES], "detect"),
        (["--before", "no-such-program", "--after", "no-such-program"], "no such program"),
        (["--reason", "why", "--baseline", "b", "--", "x"], "--reason goes with --update"),
        (["--against", "HEAD", "--", *train()], "git"),
        (["one", "two"], "one"),
        ([*SIDES, "--baseline", "b.json"], "--baseline goes with"),
        (["--baseline", "b.json", "--no-baseline", "--against", "HEAD", "--", "x"], "not both"),
        (["--baseline", "b.json", "--detect", "5%", "--", *train()], "--detect goes with --against or"),
        ([*SIDES, "--link", "data"], "--link goes with --against"),
        (["--baseline", "b.json", "--update", "--max-rounds", "3", "--", *train()], "--max-rounds goes with"),
        (["--update", "--", *train()], "--update needs --baseline FILE (or baseline = FILE in"),
        ([*SIDES, "--limit", "sync=1"], "--limit sync: nothing counts that; did you mean syncs?"),
        ([*SIDES, "--ignore", "would_snc"], "--ignore would_snc: nothing counts that; did you"),
        ([*SIDES, "--history", "none/h.jsonl"], "there is no folder"),
        ([*SIDES, "--history", "train.py"], "train.py is no history"),
        ([*SIDES, "--out", "."], "never overwritten"),
        (["--baseline", "none/b.json", "--update", "--", *train()], "there is no folder"),
        (["--det", "5%", *SIDES], "--det"),
        (["--steps", "some", "--", *train()], "--steps"),
        (["--bogus"], "unrecognized arguments: --bogus (check"),
        (["--basline", "b.json", "--", *train()], "--basline; did you mean --baseline?"),
        ([*SIDES, "--detct=5%"], "--detct=5%; did you mean --detect?"),
    ],
)
def test_bad_options_are_one_line(here: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str) -> None:
    assert main(["check", *words]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert line in lines[0]
    assert sorted(path.name for path in here.iterdir()) == ["train.py"], "a program was run, or a file written"


@pytest.mark.parametrize(
    ("number", "words", "line"),
    [
        (1, [], "two runs are compared, not 1 (one)"),
        (2, ["three"], "there is no run three"),
        (2, ["--baseline", "b.json"], "--baseline goes with --update, --baseline alone or --against"),
        (2, ["--detct", "5%"], "did you mean --detect?"),
        (2, ["--", *train()], "give one of"),
    ],
)
def test_options_with_runs(
    here: Path, capsys: pytest.CaptureFixture[str], number: int, words: list[str], line: str
) -> None:
    for name in ("one", "two"):
        (here / name).mkdir()
        (here / name / "run.json").touch()
    assert main(["check", *["one", "two/run.json"][:number], *words]) == 2
    assert line in capsys.readouterr().err


def test_a_misspelt_counter_is_reported_with_its_location(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").write_text('[tool.profiler.check]\nignore = ["would_snc"]\n')
    assert main(["check", "--before", train_command(), "--after", train_command()]) == 2
    assert "error: [tool.profiler.check] ignore: would_snc: nothing counts that" in capsys.readouterr().err


def test_a_limit_without_effect_is_a_note(baseline: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*baseline, "--limit", "h2d=1", "--", *train()]) == 0
    assert "The limit for h2d had no effect" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("option", [["--limit", "foo=1"], ["--ignore", "foo"]])
def test_a_counter_that_the_baseline_lacks_is_refused_before_anything_runs(
    baseline: list[str], capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    assert main([*baseline, *option, "--", *train()]) == 2
    assert f"error: {option[0]} foo: nothing counts that, by b.json" in capsys.readouterr().err
    assert not Path("out").exists()
