"""What `check` is told: recorded runs, names of counters; what of it did nothing is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.__main__ import main
from profiler.check.command.unheld import unheld
from profiler.check.model import INCONCLUSIVE, PASS, CounterLine, GateResult, Limit, Limits
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
        (1, [], "two runs are held against each other, not 1 (one)"),
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


# ---------------------------------------------------------------- limits that hold for nothing


def result(
    limits: Limits, state: str | None = PASS, reason: str = "", counters: tuple[str, ...] = ("syncs",)
) -> GateResult:
    lines = tuple(CounterLine(name, PASS, (1.0, 1.0), (1.0, 1.0), 1.0) for name in counters)
    return GateResult(limits=limits, counters=lines, counters_state=state, counters_reason=reason)


def test_a_limit_for_what_nothing_counts_is_said_to_hold_for_nothing() -> None:
    limits = Limits(counters={"syncs": Limit(1), "*": Limit(2)}, ignore=("syncs",))
    assert unheld(result(limits)) == ()
    assert unheld(result(limits, counters=("h2d",))) == (
        "The limit for syncs held for nothing: nothing counted it here.",
        "To ignore syncs changed nothing: nothing counted it here.",
    )
    more = Limits(counters={"h2d": Limit(1), "d2h": Limit(1), "launches": Limit(1)})
    assert unheld(result(more)) == (
        "The limits for d2h, h2d and launches held for nothing: nothing counted them here.",
    )


def test_where_no_counters_were_compared_nothing_is_said_of_their_limits() -> None:
    limits = Limits(counters={"syncs": Limit(1)})
    assert unheld(result(limits, state=None, counters=())) == ()
    assert unheld(result(limits, state=INCONCLUSIVE, reason="torch: another one", counters=())) == ()


def test_a_limit_for_nothing_is_a_note_of_the_result(baseline: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*baseline, "--limit", "h2d=1", "--", *train()]) == 0
    assert "The limit for h2d held for nothing" in " ".join(capsys.readouterr().out.split())
