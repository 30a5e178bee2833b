"""The recorder's files: never over a run, the manifest both ways, and a disk that fills up."""

from __future__ import annotations

import dataclasses
import errno
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from profiler.core.errors import ProfilerError
from profiler.run import store, tables
from profiler.run.load import load
from profiler.run.model import CollectorStatus
from profiler.run.store import check_directory
from tests.recorded.directories import info


def test_default_directories_differ(tmp_path: Path) -> None:
    first = store.default_directory(("a b/c?d",), tmp_path)
    first.mkdir()
    assert first.name.endswith("-c-d")
    assert not store.default_directory(("a b/c?d",), tmp_path).exists()


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "run"
    store.create(out)
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    for path, message in ((out, r"it is not empty .* and a run is never overwritten"), (tmp_path / "file", "a file")):
        with pytest.raises(ProfilerError, match=message):
            store.create(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_of_runs_goes_again_if_nothing_comes_into_it(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(0o755)
    for name in ("new/out", "mine"):
        with store.folder_of_runs(tmp_path / name):
            assert (tmp_path / name / ".gitignore").read_text() == "*\n"
            store.check_directory(tmp_path / name)
    assert [*tmp_path.rglob("*")] == [tmp_path / "mine"]
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o755
    (tmp_path / "mine/.gitignore").write_text("data")
    with store.folder_of_runs(tmp_path / "mine"):
        pass
    assert (tmp_path / "mine/.gitignore").read_text() == "data"
    with store.folder_of_runs(tmp_path / "new/out"):
        store.create(tmp_path / "new/out/run")
    assert {path.name for path in (tmp_path / "new/out").iterdir()} == {".gitignore", "run"}
    assert (tmp_path / "new/out/run").stat().st_mode & 0o777 == 0o700


def test_a_disk_full_from_the_start_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ProfilerError, match=r"cannot make the run directory .*: No space left on device"):
        store.create(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_manifest_both_ways(tmp_path: Path) -> None:
    written = info(
        state="complete",
        exit_code=0,
        end=5,
        host={"cpu": "x", "cores": 2},
        devices=({"name": "gpu"},),
        facts={"device": "host", "preset": None},
        collectors=(
            CollectorStatus("gpu", "unavailable", "none", cost_s=None),
            CollectorStatus("host", "ok", cost_s=0.5),
        ),
    )
    store.write_manifest(tmp_path, written)
    assert store.read_manifest(tmp_path) == written
    assert [path.name for path in tmp_path.iterdir()] == [tables.MANIFEST]


def test_fields_of_a_later_version_are_left_out(tmp_path: Path) -> None:
    store.write_manifest(tmp_path, info())
    content = json.loads((tmp_path / tables.MANIFEST).read_text())
    (tmp_path / tables.MANIFEST).write_text(json.dumps({**content, "new_field": 1}))
    assert store.read_manifest(tmp_path) == info()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"schema": 9}', r"was written by a newer version \(schema 9; this one reads 5\): upgrade"),
        ('{"schema": "1"}', "is damaged: its schema is '1'"),
        ("{}", "is damaged: its schema is None"),
        ('{"schema": 1}', "is damaged: run.json: .*missing"),
        ("[]", "holds no object"),
        ('{"schema": 1, "ru', "is damaged"),
        ("\x00\xff", "is damaged"),
    ],
)
def test_a_bad_manifest_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / tables.MANIFEST).write_text(content, encoding="latin-1")
    with pytest.raises(ProfilerError, match=message) as caught:
        store.read_manifest(tmp_path)
    assert "\n" not in str(caught.value)


class FullDisk(BytesIO):
    """Takes so many bytes, then a part of what it is given, then nothing: as a file system does."""

    def __init__(self, path: Path, room: int) -> None:
        super().__init__()
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self._room = room

    def write(self, data: Any) -> int:
        part = bytes(data)[: self._room]
        if not part:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._room -= len(part)
        return self._file.write(part)

    def close(self) -> None:
        self._file.close()
        super().close()


def test_a_full_disk_is_reported_once_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = tables.packer("samples").size
    store.create(tmp_path)
    store.write_manifest(tmp_path, info())
    monkeypatch.setattr(store, "_open", lambda path: FullDisk(path, 3 * size + 7))
    writer = store.RunWriter(tmp_path)
    for time in range(10):
        writer.samples(time, [(1, 0, "a", float(time))])
        writer.flush()
    writer.close()
    assert capsys.readouterr().err.count("No space left on device; the target goes on") == 1
    assert writer.problem == "No space left on device"
    # the fourth was cut in two: its rest and the six after it are what was dropped
    assert writer.dropped == 7
    run = load(tmp_path)
    assert run.samples["value"].tolist() == [0.0, 1.0, 2.0]
    assert "torn-record" in {problem.code for problem in run.problems}, run.problems


def test_the_end_of_a_run_gives_the_reserve_back(tmp_path: Path) -> None:
    store.create(tmp_path)
    store.write_manifest(tmp_path, info(state="running"))
    assert (tmp_path / ".reserve").stat().st_size > 1 << 15
    store.write_manifest(tmp_path, info(state="complete"))
    assert not (tmp_path / ".reserve").exists()


def test_the_writer_flushes_while_records_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(store.time, "monotonic", lambda: clock[0])
    store.create(tmp_path)
    writer = store.RunWriter(tmp_path)
    file = tmp_path / store.RECORDER / "samples.bin"
    writer.samples(1, [(1, 0, "a", 1.0)])
    assert not file.exists()
    clock[0] += 1.0
    writer.samples(2, [(1, 0, "a", 1.0)])
    assert file.stat().st_size == 2 * tables.packer("samples").size
    writer.close()


def test_the_hooks_of_an_old_manifest_are_understood() -> None:
    rows = [
        {"name": "inside", "state": "ok", "reason": "0 of 3 Python processes imported torch"},
        {"name": "host", "state": "ok", "records": 5},
    ]
    old = store.info_from_json({**dataclasses.asdict(info()), "collectors": rows}, "run")
    assert old.python_processes == (3, 0)
    assert [(status.name, status.code) for status in old.collectors] == [("hooks", "hooks-loaded"), ("host", "")]
    missing = {"name": "inside", "state": "unavailable", "reason": "hooks did not come in: no Python was started"}
    old = store.info_from_json({**dataclasses.asdict(info()), "collectors": [missing]}, "run")
    assert (old.python_processes, old.collectors[0].code) == (None, "hooks-not-loaded")


# ---------------------------------------------------------------- the link to the newest run


def test_the_link_names_the_newest_run(tmp_path: Path) -> None:
    link = tmp_path / "reports" / "runs" / "latest"
    for name in ("one", "two"):
        directory = link.parent / name
        directory.mkdir(parents=True)
        (directory / "compare.html").write_text(name)
        assert store.point_latest(link, directory) == ""
        assert (link / "compare.html").read_text() == name
    assert link.readlink() == Path("two"), "relative, so that the folder of runs can be moved"
    assert sorted(path.name for path in link.parent.iterdir()) == [".gitignore", "latest", "one", "two"]


def test_a_link_to_what_is_gone_is_replaced_also_by_another_folder(tmp_path: Path) -> None:
    link = tmp_path / "latest"
    link.symlink_to("gone")
    (tmp_path / "elsewhere").mkdir()
    assert store.point_latest(link, tmp_path / "elsewhere") == ""
    assert link.resolve() == tmp_path / "elsewhere"


def test_why_a_link_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "mine").touch()
    for link, problem in (
        (tmp_path / "latest", f"{tmp_path}/latest is not a link and stays as it is; the newest is {tmp_path}/new"),
        (tmp_path / "latest" / "mine" / "x" / "y", f"{tmp_path}/latest/mine/x/y cannot be made: Not a directory"),
    ):
        assert store.point_latest(link, tmp_path / "new").startswith(problem)
    assert (tmp_path / "latest" / "mine").exists()


def refusal(path: Path) -> str:
    with pytest.raises(ProfilerError) as error:
        check_directory(path)
    return str(error.value)


def test_nothing_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name in ("new", "new/deep", "file/below", "empty"):
        check_directory(tmp_path / name)


def test_obstacles_are_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "b.txt").touch()
    (run / "a.txt").touch()
    assert refusal(run).startswith(f"cannot use {run}: it is not empty (a.txt is in it), and a run is never")
    (run / "run.json").touch()
    assert refusal(run).startswith(f"cannot use {run}: there is a run in it, ")
    assert refusal(run / "run.json").startswith(f"cannot use {run}/run.json: it is a file, ")


@pytest.mark.parametrize(("given", "free"), [("run", "run-3"), (".", "../here-2"), ("./run/", "run-3")])
def test_the_free_directory_is_relative_if_the_path_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, free: str
) -> None:
    here = tmp_path / "here"
    (here / "run").mkdir(parents=True)
    (here / "run" / "file").touch()
    (here / "run-2").touch()
    monkeypatch.chdir(here)
    assert refusal(Path(given)).endswith(f"; {free} is free")
    assert refusal(here / "run").endswith(f"; {here}/run-3 is free")


@pytest.mark.parametrize("given", ["/", "/.", "/usr/.."])
def test_nothing_is_free_beside_the_root(given: str) -> None:
    said = refusal(Path(given))
    assert said.startswith(f"cannot use {Path(given)}: it is not empty (")
    assert said.endswith("Nothing was recorded or changed")


def test_names_that_would_break_the_line_are_escaped(tmp_path: Path) -> None:
    run = tmp_path / "a\nb"
    run.mkdir()
    (run / "\x1b[31m").touch()
    said = refusal(run)
    assert said.isprintable()
    assert "('\\x1b[31m' is in it)" in said
    assert "a\\nb-2' is free" in said
