"""Commands without RUN read the newest run that has ended, and say which it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profiler.__main__ import main
from profiler.commands._common import RUNS, newest_run
from profiler.core.errors import Exit, ProfilerError
from profiler.knockout import trial
from profiler.run.tables import MANIFEST
from tests.recorded.directories import steps, write_manifest, write_source

NEWEST = RUNS / "a-newest"
SAID = f"profiler: the newest run is {NEWEST}\n"


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}+00:00"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs that have ended, and later ones that are not to be read."""
    monkeypatch.chdir(tmp_path)
    write_manifest(NEWEST, label="mine", started_at=at(2), level="standard", end=3_000_000)
    write_source(NEWEST, 7, steps=steps(3, 1000, tid=7, tokens=1))
    write_manifest(RUNS / "z-older", started_at=at(1))
    write_manifest(RUNS / "running", started_at=at(3), state="running")
    write_manifest(RUNS / "comparison" / "before", started_at=at(4))
    (RUNS / "latest").symlink_to("comparison")
    (RUNS / "empty").mkdir()
    (RUNS / "damaged").mkdir()
    (RUNS / "damaged" / MANIFEST).write_text('{"schema": 1, "started_at": "2026')
    (RUNS / "no object").mkdir()
    (RUNS / "no object" / MANIFEST).write_text("[]")
    (RUNS / "unreadable" / MANIFEST).mkdir(parents=True)
    (RUNS / "file").touch()


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["diagnose"], ""),
        (["diagnose", "--format", "json"], ""),
        (["report"], "report.html"),
        (["report", "--format", "json"], "report.json"),
        (["export"], "trace.json.gz"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_the_newest_run_that_has_ended(words: list[str], file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == Exit.OK
    printed = capsys.readouterr()
    assert printed.err == SAID
    if file:
        assert printed.out == f"{NEWEST / file}\n"
        assert (NEWEST / file).exists()


@pytest.mark.usefixtures("runs")
def test_try(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(trial, "check_isolation", lambda: None)
    assert main(["try", "--yes"]) != Exit.OK, "the run has no finding"
    said = capsys.readouterr().err
    assert said.startswith(SAID)
    assert said.count("\n") == 2, said


@pytest.mark.usefixtures("runs")
def test_a_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "--what-if", "sync=0"]) == Exit.USAGE, "the run has no waits"
    assert capsys.readouterr().err.startswith(f"{SAID}error: --what-if: sync=0: ")


@pytest.mark.usefixtures("runs")
def test_a_named_run_is_read_wherever_it_stands_among_options(capsys: pytest.CaptureFixture[str]) -> None:
    older = str(RUNS / "z-older")
    for words in (["report", "--format", "md", older], ["report", older, "--format", "md"]):
        assert main(words) == Exit.OK
        printed = capsys.readouterr()
        assert (printed.out, printed.err) == (f"{older}/report.md\n", "")


@pytest.mark.usefixtures("runs")
def test_runs_of_one_second_are_ordered_by_their_manifests() -> None:
    write_manifest(RUNS / "0-later", started_at=at(2))
    written = (NEWEST / MANIFEST).stat().st_mtime_ns + 1
    os.utime(RUNS / "0-later" / MANIFEST, ns=(written, written))
    assert newest_run() == RUNS / "0-later"


@pytest.mark.parametrize("command", ["diagnose", "report", "export"])
def test_no_run_is_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = (
        "error: there is no finished run in reports/runs: name a run directory, or record one with "
        "python -m profiler run -- python train.py\n"
    )
    assert main([command]) == Exit.USAGE
    assert capsys.readouterr().err == line
    write_manifest(RUNS / "running", state="running")
    with pytest.raises(ProfilerError):
        newest_run()
