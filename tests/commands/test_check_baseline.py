"""A baseline beside another revision, one that pyproject.toml names, and what is said of the side that it gates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler.__main__ import main
from profiler.check import history
from tests.commands.checked import STEPPING, committed, git, quoted, said, train

# ---------------------------------------------------------------- a baseline beside another revision


def test_a_baseline_gates_beside_a_revision(baseline: list[str]) -> None:
    Path("train.py").write_text(STEPPING.replace('"syncs", syncs', '"syncs", syncs + 1'))
    committed("train.py")
    assert main([*baseline, "--against", "HEAD", "--max-rounds", "2", "--", *train()]) == 1
    found = said()
    assert "syncs rose by 1 per step" in str(found["sentence"]).lower()
    assert found["baseline_file"] == "b.json"
    assert "against b.json" in json.dumps(found["counters"]), "it does not say what it rose against"


def test_a_damaged_baseline_is_refused_before_anything_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    committed("train.py")
    Path("b.json").write_text("{}")
    assert main(["check", "--baseline", "b.json", "--against", "HEAD", "--out", "out", "--", *train()]) == 2
    assert main(["check", "--baseline", "none.json", "--against", "HEAD", "--out", "out", "--", *train()]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 2, lines
    assert not Path("out").exists()


def test_a_baseline_of_pyproject_gates_where_it_can_and_else_is_said_to_be_unused(baseline: list[str]) -> None:
    Path("pyproject.toml").write_text('[tool.profiler.check]\nbaseline = "b.json"\n')
    Path("train.py").write_text(STEPPING.replace('"syncs", syncs', '"syncs", syncs + 1'))
    committed("train.py")
    soon = ["--max-seconds", "0.001"]
    assert main(["check", "--out", "a", "--", *train()]) == 1
    assert main(["check", "--out", "b", "--against", "HEAD", *soon, "--", *train()]) == 1
    assert main(["check", "--out", "c", "--against", "HEAD", "--no-baseline", *soon, "--", *train()]) == 3
    assert main(["check", "--out", "d", "--before", quoted(), "--after", quoted(), *soon]) == 3
    for out in ("c", "d"):
        assert "was not used" in str(said(out)["notes"])


# ---------------------------------------------------------------- what it says of the sides


def test_a_side_of_a_baseline_says_its_commit_changes_and_step_time(
    baseline: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    committed("train.py")
    assert main([*baseline, "--history", "h.jsonl", "--", *train()]) == 0
    side: dict[str, object] = said()["candidate"]  # type: ignore[assignment]
    commit = git("rev-parse", "HEAD").strip()
    assert side["commit"] == f"{commit}+changes", "b.json and the runs are new"
    assert f" at {commit[:10]}+changes" in " ".join(capsys.readouterr().out.split())
    assert side["step_time"] is not None
    assert side["tokens_per_s"] is not None
    (entry,) = history.read(Path("h.jsonl")).entries
    assert entry.step_time is None, "it would lie in one series with rounds of another level"
