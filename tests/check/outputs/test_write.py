"""Everything a check leaves: whole files or none, and a summary that fits."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.check.outputs import markdown, write
from profiler.check.outputs.places import Places
from profiler.core.errors import ProfilerError
from profiler.core.notice import Notice
from tests.check.outputs import results
from tests.report import samples

NAMES = ["check.html", "check.json", "check.md", "check.sarif", "codequality.json", "junit.xml"]


@pytest.mark.parametrize("name", ["failed", "hostile", "unmeasured"])
def test_six_files_and_nothing_else(tmp_path: Path, name: str) -> None:
    written = write.write_all(results.everything()[name], tmp_path / "new", where=Places("", ""))
    assert sorted(one.name for one in (tmp_path / "new").iterdir()) == sorted(written) == NAMES
    assert json.loads(written["check.json"].read_text())["schema"] == "check/1"
    assert written["check.html"].read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_comparison_follows_in_the_page(tmp_path: Path) -> None:
    comparison = samples.comparison()
    written = write.write_all(results.passed(), tmp_path, comparison)
    page = written["check.html"].read_text(encoding="utf-8")
    assert 0 < page.index('<section id="check"') < page.index('<section id="comparison-verdict"')


def test_a_full_disk_is_one_line_and_leaves_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        (tmp_path / name).write_text("old")

    def full(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(ProfilerError, match="No space left on device") as caught:
        write.write_all(results.passed(), tmp_path)
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(NAMES, "old")


def test_a_fault_of_a_renderer_leaves_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "check.json").write_text("old")

    def broken(*_: object) -> str:
        raise ValueError("broken")

    monkeypatch.setattr(write.codequality, "render", broken)
    with pytest.raises(ValueError, match="broken"):
        write.write_all(results.passed(), tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_the_summary_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    path.write_text("before")
    write.append_summary(results.passed(), path)
    write.append_summary(results.failed(), path)
    first, second = markdown.render(results.passed()), markdown.render(results.failed())
    assert path.read_text(encoding="utf-8") == f"before\n{first}\n{second}"


def test_a_summary_that_is_too_long_loses_its_details_and_then_its_end() -> None:
    result = results.failed()
    whole = markdown.render(result).encode()
    short = markdown.render(result, details=False).encode()
    assert write.summary(result, len(whole)) == whole
    assert write.summary(result, len(whole) - 1) == short
    cut = write.summary(result, len(short) - 1)
    assert len(cut) < len(short)
    assert cut.endswith(b"All of it is in check.md.*\n")
    kept = cut.decode().partition("\n\n*The rest")[0]
    assert short.decode().startswith(kept)
    assert "Performance check: FAIL" in kept
    assert [len(write.summary(result, room)) <= room for room in (0, 10, 200)] == [True] * 3


def test_many_notes_stay_below_a_mebibyte(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    path.write_bytes(b"x" * 500_000)
    write.append_summary(replace(results.passed(), notes=(Notice("text", {"text": "数据" * 50}),) * 5000), path)
    assert 600_000 < path.stat().st_size <= 1024 * 1024
    path.read_text(encoding="utf-8")


def test_a_summary_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ProfilerError, match="cannot write the job's summary") as caught:
        write.append_summary(results.passed(), tmp_path / "no" / "folder")
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_below_the_summary_is_one_line() -> None:
    with pytest.raises(ProfilerError, match=os.strerror(errno.ENOSPC)):
        write.append_summary(results.passed(), Path("/dev/full"))
