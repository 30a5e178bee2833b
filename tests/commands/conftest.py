"""The folder that checks are tested in."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.__main__ import main
from profiler.check.speed import interleave as rounds
from tests.check.speed.programs import ROOT
from tests.commands.check_programs import STEPPING, train


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a trainer in it; rounds have few blocks, and these are short."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(rounds, "BLOCK_S", 0.002)
    monkeypatch.setattr(rounds, "BLOCKS", ((float("inf"), 8),))
    (tmp_path / "train.py").write_text(STEPPING)
    return tmp_path


@pytest.fixture(scope="session")
def baseline_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A baseline of `train()`, counted once for all tests of a worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("baseline"))
        patch.setenv("PYTHONPATH", str(ROOT))
        Path("train.py").write_text(STEPPING)
        assert main(["check", "--baseline", "b.json", "--update", "--out", "written", "--", *train()]) == 0
        return Path("b.json").read_text()


@pytest.fixture
def baseline(here: Path, baseline_text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The words of a check that passes against the file b.json."""
    (here / "b.json").write_text(baseline_text)
    capsys.readouterr()
    return ["check", "--baseline", "b.json", "--out", "out"]
