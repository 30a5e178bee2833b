"""The files of a check: all of them or none."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path

import pytest

from profiler.check.outputs import write
from profiler.core.errors import ProfilerError
from tests.check.outputs import results
from tests.report import samples

NAMES = ["check.html", "check.json", "check.md", "check.sarif", "junit.xml"]


@pytest.mark.parametrize("name", ["failed", "hostile", "unmeasured"])
def test_six_files_and_nothing_else(tmp_path: Path, name: str) -> None:
    written = tmp_path / "new"
    write.write_all(results.everything()[name], written)
    assert sorted(file.name for file in written.iterdir()) == NAMES
    assert json.loads((written / "check.json").read_text())["schema"] == "check/2"
    assert (written / "check.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_comparison_follows_in_the_page(tmp_path: Path) -> None:
    comparison = samples.comparison()
    write.write_all(results.passed(), tmp_path, comparison)
    page = (tmp_path / "check.html").read_text(encoding="utf-8")
    sections = re.findall('<section id="([^"]*)"', page)
    for check, compared in (("counters", "counters"), ("throughput", "numbers"), ("method", "verdict")):
        assert sections.index(f"check-{check}") < sections.index(f"comparison-{compared}")
    assert page.index("PASS</em>") < page.index('<section id="comparison-')


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

    monkeypatch.setattr(write.machine, "render_junit", broken)
    with pytest.raises(ValueError, match="broken"):
        write.write_all(results.passed(), tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
