"""`attach` as a user runs it: what the terminal shows, the run that it leaves, and refusals with their exit codes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.__main__ import main
from profiler.core.errors import Exit
from profiler.record import launch
from profiler.run.load import load
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
    monkeypatch.setattr(launch, "missing_permission", lambda pid: "ptrace is forbidden: do this")
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


def test_neither_attach_nor_run_runs_a_program_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("program").write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
    Path("program").chmod(0o755)
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (
        ("init", "-q"),
        (*identity, "commit", "-q", "--allow-empty", "-m", "a"),
        ("config", "core.fsmonitor", f"{tmp_path}/program"),
    ):
        subprocess.run(["git", *words], check=True)
    with waiting_python() as process:
        main(["attach", str(process.pid), "--seconds", "0.1", "--out", "attached"])
        process.communicate("\n")
    assert main(["run", "--level", "light", "--out", "recorded", "--", "true"]) == Exit.OK
    commits = {load(Path(run)).info.git_commit for run in ("attached", "recorded")}
    assert not Path("ran").exists()
    head = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    assert commits == {head.stdout.strip()}
    subprocess.run(["git", "status"], check=True, capture_output=True)
    assert Path("ran").exists(), "git itself runs it, so the test proves something"
