"""The commands report and diagnose: wiring, files, and faults in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import profiler
from profiler.__main__ import main
from profiler.core.errors import Exit
from profiler.run.tables import MANIFEST
from tests.recorded.builders import RunBuilder
from tests.report import samples


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory whose analysis is a made-up one."""
    monkeypatch.setattr(profiler, "load", lambda path: RunBuilder(level="standard").build())
    monkeypatch.setattr(profiler, "analyse_run", lambda run, **_: samples.analysis())
    (tmp_path / MANIFEST).touch()
    return tmp_path


def test_report_goes_into_the_run_by_default(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run)]) == Exit.OK
    assert capsys.readouterr().out.strip() == str(run / "report.html")
    assert sorted(path.name for path in run.iterdir()) == ["report.html", MANIFEST]


@pytest.mark.parametrize("name", ["my.run.zip", "my.run.json.gz", "my.run"])
def test_report_of_an_archive_or_a_trace_goes_into_the_current_folder(
    run: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "here").mkdir()
    (run / name).mkdir() if name == "my.run" else (run / name).touch()
    monkeypatch.chdir(run / "here")
    assert main(["report", str(run / name), "--format", "md"]) == Exit.OK
    assert [path.name for path in (run / "here").iterdir()] == ["my.run.md"]


@pytest.mark.parametrize(("form", "begins"), [("html", "<!doctype"), ("md", "# Device idle"), ("json", "{")])
def test_every_format_to_a_file_of_choice(run: Path, form: str, begins: str) -> None:
    out = run / "deep" / f"my.{form}"
    assert main(["report", str(run), "--format", form, "--out", str(out)]) == Exit.OK
    assert out.read_text(encoding="utf-8").startswith(begins)


def test_json_format_is_the_run_schema(run: Path) -> None:
    main(["report", str(run), "--format", "json"])
    assert json.loads((run / "report.json").read_text())["schema"] == "run/2"


def test_console_format_shows_every_section_and_takes_no_file(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--format", "text"]) == Exit.OK
    assert "== Method and warnings ==" in capsys.readouterr().out
    assert main(["report", str(run), "--format", "text", "--out", str(run / "x")]) == Exit.USAGE
    assert capsys.readouterr().err.startswith("error: --out:")


def test_diagnose_prints_the_verdict(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(run)]) == Exit.OK
    out = capsys.readouterr().out
    assert "Device idle 95% of the time" in out
    assert "as_found.py:88" in out


def test_diagnose_prints_the_json_of_report(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(run), "--format", "json"]) == Exit.OK
    printed = capsys.readouterr().out
    assert main(["report", str(run), "--format", "json"]) == Exit.OK
    assert json.loads(printed) == json.loads((run / "report.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", ["report", "diagnose"])
def test_what_is_no_run_is_one_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, str(tmp_path / "nothing")]) == Exit.USAGE
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
