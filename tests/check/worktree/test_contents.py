"""What git does not check out itself: submodules, large files, links to data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from profiler.check.worktree import Side, prepared
from profiler.core.errors import ProfilerError

pytestmark = pytest.mark.usefixtures("asked_once")

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


def at(rev: str, repository: Path, *links: str, cwd: str = ".") -> Any:
    return prepared(rev, ("true",), cwd=repository / cwd, links=links, say=lambda line: None)


@pytest.fixture
def library(tmp_path: Path, git: Any) -> Path:
    root = tmp_path / "library"
    root.mkdir()
    git(root, "init", "--quiet")
    for number in (1, 2):
        (root / "value.py").write_text(f"VALUE = {number}\n")
        git(root, "add", ".")
        git(root, "commit", "--quiet", "-m", f"{number}")
    return root


@pytest.fixture
def nested(repository: Path, library: Path, git: Any) -> Path:
    """The repository with the library at its first commit, and one commit later at its second."""
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "lib")
    git(repository / "lib", "checkout", "--quiet", "HEAD~1")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "with the library")
    git(repository / "lib", "checkout", "--quiet", "-")
    git(repository, "commit", "--quiet", "-am", "its second")
    return repository


def test_submodules_come_from_the_local_ones(nested: Path, library: Path, git: Any) -> None:
    library.rename(library.with_name("server-is-down"))
    config = (nested / ".git" / "config").read_bytes()
    with at("HEAD~1", nested) as side:
        assert (side.cwd / "lib" / "value.py").read_text() == "VALUE = 1\n"
        assert side.notes == ()
        assert git(side.cwd, "status", "--porcelain") == ""
    assert (nested / ".git" / "config").read_bytes() == config
    assert git(nested, "status", "--porcelain") == ""
    assert (nested / "lib" / "value.py").read_text() == "VALUE = 2\n"
    assert git(nested / "lib", "fsck") == ""


def test_a_submodule_that_is_not_here_is_a_line(nested: Path, tmp_path: Path, git: Any) -> None:
    git(tmp_path, "clone", "--quiet", str(nested), "clone")
    with at("HEAD~1", tmp_path / "clone") as side:
        assert list((side.cwd / "lib").iterdir()) == []
        (note,) = side.notes
    assert note.startswith("submodule lib is empty there")
    assert "git submodule update --init lib" in note


def test_pointers_of_large_files_are_told(repository: Path, git: Any) -> None:
    (repository / ".gitattributes").write_text("*.pt filter=lfs\n")
    (repository / "model.pt").write_text(POINTER)
    (repository / "small.pt").write_text("weights")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "large")
    with at("HEAD", repository) as side:
        (note,) = side.notes
        assert note.startswith("model.pt: large files of git-lfs")
    (repository / "model.pt").write_text("the weights themselves")
    with at("HEAD", repository, "model.pt") as side:
        assert (side.cwd / "model.pt").read_text() == "the weights themselves"
        assert side.notes == ()


def test_data_that_git_does_not_keep_is_linked(repository: Path, tmp_path: Path, git: Any) -> None:
    (repository / "data" / "deep").mkdir(parents=True)
    (repository / "data" / "deep" / "a.txt").write_text("a")
    (repository / "sub" / "weights.bin").write_text("w")
    (tmp_path / "disk").mkdir()
    (repository / "more").symlink_to(tmp_path / "disk")
    with at("HEAD~1", repository, "../data/", "weights.bin", str(repository / "more"), cwd="sub") as side:
        assert (side.cwd.parent / "data" / "deep" / "a.txt").read_text() == "a"
        assert (side.cwd / "weights.bin").read_text() == "w"
        assert (side.cwd.parent / "more").resolve() == tmp_path / "disk"
    assert (repository / "data" / "deep" / "a.txt").read_text() == "a", "removing the worktree went through a link"
    assert (tmp_path / "disk").is_dir()


def test_what_the_revision_has_stays_its_own(repository: Path, git: Any) -> None:
    (repository / "sub" / "weights.bin").write_text("w")
    with at("HEAD~1", repository, "sub", "train.py") as side:
        assert (side.cwd / "sub" / "part.txt").read_text() == "1\n"
        assert (side.cwd / "sub" / "weights.bin").read_text() == "w"
        assert (side.cwd / "train.py").read_text() == "print(1)\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [("nowhere", "no such file"), ("..", "is not within"), (".", "is not within"), (".git/config", "git's own")],
)
def test_a_bad_link_is_one_line(repository: Path, name: str, said: str) -> None:
    with pytest.raises(ProfilerError, match=said), at("HEAD", repository, name):
        pass


def test_a_side_is_a_value() -> None:
    assert Side(("a",), Path()) == Side(("a",), Path())
    assert os.fspath(Side(("a",), Path("x")).cwd) == "x"
