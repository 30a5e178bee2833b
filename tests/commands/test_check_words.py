"""What `check` is told: recorded runs, names of counters; what of it did nothing is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.__main__ import main
from tests.commands.checked import quoted, train


@pytest.fixture
def runs(here: Path) -> list[str]:
    """Two that are not looked into: what does not go together is said before."""
    for name in ("one", "two"):
        (here / name).mkdir()
        (here / name / "run.json").touch()
    return ["one", "two/run.json"]


@pytest.mark.parametrize(
    ("number", "words", "line"),
    [
        (1, [], "two runs are compared, not 1 (one)"),
        (2, ["three"], "three is no recorded run: there is nothing of that name"),
        (2, ["--baseline", "b.json"], "--baseline goes with --update, --baseline alone or --against"),
        (2, ["--detct", "5%"], "did you mean --detect?"),
        (2, ["--", *train()], "give one of"),
    ],
)
def test_what_recorded_runs_do_not_go_with(
    runs: list[str], capsys: pytest.CaptureFixture[str], number: int, words: list[str], line: str
) -> None:
    assert main(["check", *runs[:number], *words]) == 2
    assert line in capsys.readouterr().err


def test_a_misspelt_counter_is_said_where_it_stands(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").write_text('[tool.profiler.check]\nignore = ["would_snc"]\n')
    command = ["check", "--before", quoted(), "--after", quoted()]
    assert main(command) == 2
    assert "error: [tool.profiler.check] ignore: would_snc: nothing counts that" in capsys.readouterr().err
    assert main([*command, "--ignore", "launchs"]) == 2
    assert "error: --ignore launchs: nothing counts that; did you mean launches?" in capsys.readouterr().err


def test_a_limit_for_nothing_is_a_note_of_the_result(baseline: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*baseline, "--limit", "h2d=1", "--", *train()]) == 0
    assert "The limit for h2d had no effect" in " ".join(capsys.readouterr().out.split())
