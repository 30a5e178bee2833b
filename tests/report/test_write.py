"""Writing: three files, whole or not at all, one line where it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler.core.errors import ProfilerError
from profiler.report import write
from tests.report import samples


def test_three_files_and_nothing_else(tmp_path: Path) -> None:
    page = write.write_comparison(samples.empty_comparison(), tmp_path / "new" / "folder")
    assert sorted(path.name for path in page.parent.iterdir()) == ["compare.html", "compare.json", "compare.md"]
    assert json.loads(page.with_suffix(".json").read_text())["schema"] == "comparison/2"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert page.stat().st_mode & 0o400


def test_a_full_disk_is_one_line_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "compare.md"
    path.write_text("old")

    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(ProfilerError, match="No space left on device") as caught:
        write.write_text(path, "new")
    assert str(path) in str(caught.value)
    assert path.read_text() == "old"
    assert [other.name for other in tmp_path.iterdir()] == ["compare.md"]


def test_a_file_in_the_way_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ProfilerError, match="cannot write the report"):
        write.write_comparison(samples.empty_comparison(), tmp_path / "taken")
