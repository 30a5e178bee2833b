"""`attach` as a user runs it: what the terminal shows, the run that it leaves, and refusals with their exit codes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.__main__ import main
from profiler.core.errors import Exit
from profiler.record import attach
from tests.fakes.programs import waiting_python


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[str]]:
    with waiting_python() as process:
        yield process


def test_a_missing_permission_is_explained_and_leaves_a_run(
    tmp_path: Path,
    waiting: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(attach, "missing_permission", lambda pid: "ptrace is forbidden: do this")
    out = tmp_path / "run"
    code = main(["attach", str(waiting.pid), "--seconds", "1", "--out", str(out)])
    waiting.communicate("\n")
    said = capsys.readouterr().out
    assert code == Exit.NOT_COMPARABLE
    assert "stacks: unavailable: ptrace is forbidden: do this" in said
    assert f"run directory: {out}" in said
    assert f"more: python -m profiler diagnose {out}\n      python -m profiler report {out}" in said
    assert said.index("stacks: unavailable") < said.index("Processes"), "what could not be had comes first"
    assert "MB" in said, "what the host shows is shown"
    assert main(["diagnose", str(out)]) == Exit.OK
    assert main(["report", str(out)]) == Exit.OK


@pytest.mark.parametrize("words", [["0"], ["x"], ["1", "--seconds", "0"], ["1", "--seconds", "nan"]])
def test_bad_arguments(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["attach", *words])
    assert ended.value.code == Exit.USAGE
    assert "error: argument" in capsys.readouterr().err


def test_an_ended_process(waiting: subprocess.Popen[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    waiting.communicate("\n")
    assert main(["attach", str(waiting.pid), "--out", str(tmp_path / "run")]) == Exit.USAGE
    assert capsys.readouterr().err.startswith(f"error: there is no process {waiting.pid} here")
    assert not (tmp_path / "run").exists()
