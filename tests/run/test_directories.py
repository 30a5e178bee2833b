"""An error names what is in the way of a run, and a free directory; unreadable ones are left to the system."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.core.errors import ProfilerError
from profiler.run.store import check_directory


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
