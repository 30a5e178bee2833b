"""A run in one .zip: loaded as its directory is, and one line for what is no such archive."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from profiler.core.errors import ProfilerError
from profiler.run import store, tables
from profiler.run.load import load
from profiler.run.model import RunInfo


def recorded(folder: Path, label: str = "train") -> Path:
    """A run of one step at `folder`/run."""
    run = folder / "run"
    (run / "source-7").mkdir(parents=True)
    store.write_manifest(run, RunInfo(tables.SCHEMA, "r", "", ("train",), label=label, state="complete"))
    (run / "source-7" / "source.json").write_text('{"schema": 1, "pid": 7, "rank": 0, "facts": {"device": "host"}}')
    (run / "source-7" / "steps.bin").write_bytes(tables.packer("steps").pack(0, 10, 30, 5, 1, 1, 0, 7, 0))
    return run


@pytest.mark.parametrize("top", ["run", "."], ids=["in a folder", "at the top"])
def test_an_archive_loads_as_its_directory_does(tmp_path: Path, top: str) -> None:
    run = recorded(tmp_path)
    archive = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", run if top == "." else tmp_path, top))
    folder, packed = load(run), load(archive)
    assert packed.path == archive
    assert packed.info == folder.info
    assert packed.problems == folder.problems == ()
    assert packed.steps.tolist() == folder.steps.tolist() == [(0, 10, 30, 5, 1, 1, 0, 7, 0, 7, 0)]


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    load(shutil.make_archive(str(tmp_path / "packed"), "zip", recorded(tmp_path)))
    assert list(scratch.iterdir()) == []


def test_what_is_wrong_inside_is_told_of_the_archive(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    (run / "run.json").write_text("{")
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "run")
    with pytest.raises(ProfilerError, match=r"packed\.zip/run\.json is damaged") as caught:
        load(archive)
    assert "profiler-" not in str(caught.value), "the temporary folder means nothing to a reader"


def test_no_run_or_several(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "none.zip", "w") as file:
        file.writestr("readme.txt", "nothing")
    with pytest.raises(ProfilerError, match=r"none\.zip holds 0 runs"):
        load(tmp_path / "none.zip")
    recorded(tmp_path / "both" / "a")
    recorded(tmp_path / "both" / "b")
    with pytest.raises(ProfilerError, match=r"two\.zip holds 2 runs: give a \.zip of one"):
        load(shutil.make_archive(str(tmp_path / "two"), "zip", tmp_path / "both"))


def test_damaged_archives(tmp_path: Path) -> None:
    good = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", recorded(tmp_path))).read_bytes()
    flipped = bytearray(good)
    flipped[good.index(b"run.json") + len("run.json") + 20] ^= 0xFF  # within the manifest's compressed bytes
    for name, content in (("text", b"not an archive"), ("torn", good[: len(good) // 2]), ("flipped", bytes(flipped))):
        path = tmp_path / f"{name}.zip"
        path.write_bytes(content)
        with pytest.raises(ProfilerError, match=rf"{name}\.zip is damaged, or not a \.zip that can be read"):
            load(path)


def test_entries_cannot_leave_the_temporary_folder(tmp_path: Path) -> None:
    run, escaped = recorded(tmp_path), tmp_path.parent / "escaped.txt"
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(run / "run.json", "run/run.json")
        file.writestr(f"../../{escaped.name}", "x")
        file.writestr(str(escaped), "x")
    assert load(archive).info.label == "train"
    assert not escaped.exists()
