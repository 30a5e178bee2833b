"""Options of `check` that mean nothing together or name what does not exist: one line, exit code 2, nothing is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from profiler.__main__ import main
from tests.commands.check_programs import train, train_command

SIDES = ("no-such-program a", "no-such-program b")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "nothing to check"),
        (["--", "train"], "nothing to compare the command to"),
        (["--baseline", "none.json", "--", *train()], "there is no baseline none.json"),
        (["--against", "HEAD"], "after --"),
        (["one"], "there is no run one; a command goes after --"),
        ([".", "two"], ". is no recorded run: there is no run.json in it"),
        (["--baseline", "c.json", *train()], f"check --baseline c.json -- {train_command()}"),
        (["--against", "main", "train.py", "--lr", "1"], "train.py is no recorded run: put -- before a command"),
        (["--against", "main", "train.py", "--lr", "1"], "as in: check --against main -- train.py --lr 1"),
        (["one", "two", "--", "three"], "give one of"),
        (["--set", "detect=fast", *SIDES], "--set detect: 'fast' is neither"),
        ([*SIDES], "no such program"),
        (["--against", "HEAD", "--", *train()], "git"),
        (["one", "two"], "one"),
        ([*SIDES, "--baseline", "b.json"], "--baseline goes with"),
        ([*SIDES, "--link", "data"], "--link goes with --against"),
        (["--virtual-cuda", "1", *SIDES], "--virtual-cuda goes with --update, --baseline alone or --against with"),
        (["--update", "--", *train()], "--update needs --baseline FILE (or baseline = FILE in"),
        (
            [*SIDES, "--set", "limits.sync=1"],
            "limits (--set, or [tool.profiler.check]): sync: nothing counts that; did",
        ),
        ([*SIDES, "--set", 'ignore=["might_snc"]'], "might_snc: nothing counts that; did you mean might_sync?"),
        ([*SIDES, "--set", "history=none/h.jsonl"], "there is no folder"),
        ([*SIDES, "--set", "history=train.py"], "train.py is no history"),
        ([*SIDES, "--out", "."], "never overwritten"),
        (["--baseline", "train.py/b.json", "--update", "--", *train()], "there is no folder"),
        (["--set", "limits", *SIDES], "--set limits: name a key and its value"),
        (["--set", "limits.=1", *SIDES], "name a key and its value"),
        (["--set", "detct=1", *SIDES], "--set has no key detct: did you mean detect?"),
        (["--agai", "main", *SIDES], "--agai"),
        (["--set", "steps=some", "--", *train()], "--set steps: Input should be a valid integer"),
        (["--bogus"], "unrecognized arguments: --bogus (check"),
        (["--basline", "b.json", "--", *train()], "--basline: did you mean --baseline?"),
        ([*SIDES, "--bseline=b"], "--bseline=b: did you mean --baseline?"),
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
        (1, [], "two runs or commands are compared, not 1 (one)"),
        (2, ["three"], "there is no run three"),
        (2, ["--baseline", "b.json"], "--baseline goes with --update, --baseline alone or --against"),
        (2, ["--bseline", "b"], "did you mean --baseline?"),
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
    Path("pyproject.toml").write_text('[tool.profiler.check]\nignore = ["might_snc"]\n')
    assert main(["check", train_command(), train_command()]) == 2
    assert "error: ignore (--set, or [tool.profiler.check]): might_snc: nothing counts that" in capsys.readouterr().err


def test_a_limit_without_effect_is_a_note(baseline: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*baseline, "--set", "limits.h2d=1", "--", *train()]) == 0
    assert "The limit for h2d had no effect" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("option", ["limits.foo=1", 'ignore=["foo"]'])
def test_a_counter_that_the_baseline_lacks_is_refused_before_anything_runs(
    baseline: list[str], capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert main([*baseline, "--set", option, "--", *train()]) == 2
    assert "foo: nothing counts that, by b.json" in capsys.readouterr().err
    assert not Path("out").exists()


def test_the_help_has_eight_options_and_names_the_place_of_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    shown = capsys.readouterr().out
    assert len(re.findall(r"^  --[a-z]", shown, flags=re.MULTILINE)) == 8
    assert "[tool.profiler.check]" in shown


def test_an_update_makes_the_folder_of_its_baseline(here: Path) -> None:
    assert main(["check", "--baseline", "ci/new/b.json", "--update", "--", *train()]) == 0
    assert main(["check", "--baseline", "ci/new/b.json", "--", *train()]) == 0
