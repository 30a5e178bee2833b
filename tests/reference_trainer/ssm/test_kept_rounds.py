"""Rounds of the sweep's benchmark that are kept from one sitting to the next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks import bench_ssm
from tests.benchmarks.bench_ssm import commands, rounds


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bench_ssm, "KEEP", str(tmp_path / "kept"))
    monkeypatch.setattr(bench_ssm, "ROUNDS", 1)
    monkeypatch.setattr(bench_ssm, "commit", lambda: "one")
    return tmp_path / "kept"


def test_they_say_what_they_are_of(folder: Path) -> None:
    settings = commands(["--variant", "fixed"])
    assert rounds("all", {"way": lambda: 1}, settings) == [{"way": 1}]
    assert rounds("all", {"way": lambda: 2}, settings) == [{"way": 1}, {"way": 2}]
    header, *_ = map(json.loads, (folder / "all.jsonl").read_text().splitlines())
    assert header == {"commit": "one", **settings}
    assert header["commands"] == ["--variant fixed"]


def test_those_of_others_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds("all", {"way": lambda: 1}, commands(["one"]))
    with pytest.raises(pytest.fail.Exception, match="of another commands: keep"):
        rounds("all", {"way": lambda: 1}, commands(["two"]))
    monkeypatch.setattr(bench_ssm, "commit", lambda: "two")
    with pytest.raises(pytest.fail.Exception, match="of another commit: keep"):
        rounds("all", {"way": lambda: 1}, commands(["one"]))


def test_no_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is looked at; where there is nothing, nothing is said."""
    monkeypatch.setattr(bench_ssm, "ROUNDS", 0)
    with pytest.raises(pytest.skip.Exception, match="none is kept"):
        rounds("all", {}, commands(["one"]))
    monkeypatch.setattr(bench_ssm, "ROUNDS", 1)
    rounds("all", {"way": lambda: 1}, commands(["one"]))
    monkeypatch.setattr(bench_ssm, "ROUNDS", 0)
    assert rounds("all", {}, commands(["one"])) == [{"way": 1}]
