"""A revision also has what git does not check out itself: submodules, links to data, byte code."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.check.worktree.conftest import assert_refused, at_revision

pytestmark = pytest.mark.usefixtures("inspected_once")


def at(rev: str, repository: Path, *links: str, cwd: str = ".") -> Any:
    return at_revision(rev, repository / cwd, ("true",), links=links)


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


def test_submodules_come_from_the_users_checkout(nested: Path, library: Path, git: Any) -> None:
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


def test_a_submodule_that_is_not_checked_out_is_a_note(nested: Path, tmp_path: Path, git: Any) -> None:
    git(tmp_path, "clone", "--quiet", str(nested), "clone")
    with at("HEAD~1", tmp_path / "clone") as side:
        assert list((side.cwd / "lib").iterdir()) == []
        (note,) = side.notes
    assert (note.code, note.values["name"]) == ("submodule-missing", "lib")


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


def test_files_of_the_revision_are_not_replaced_by_links(repository: Path, git: Any) -> None:
    (repository / "sub" / "weights.bin").write_text("w")
    with at("HEAD~1", repository, "sub", "train.py") as side:
        assert (side.cwd / "sub" / "part.txt").read_text() == "1\n"
        assert (side.cwd / "sub" / "weights.bin").read_text() == "w"
        assert (side.cwd / "train.py").read_text() == "print(1)\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [("nowhere", "no such file"), ("..", "is not within"), (".", "is not within"), (".git/config", "git's own")],
)
def test_a_bad_link_is_one_line(repository: Path, name: str, message: str) -> None:
    assert_refused(message, "HEAD", repository, links=(name,))


@pytest.fixture
def compiled(repository: Path, git: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Modules of the working tree: compiled, compiled before a change, never compiled, with a syntax error."""
    for name in ("PYTHONPYCACHEPREFIX", "PYTHONOPTIMIZE", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    for name in ("known", "stale", "fresh", "broken"):
        (repository / "sub" / f"{name}.py").write_text("VALUE = 1\n" if name != "broken" else "VALUE = (\n")
    (repository / ".gitignore").write_text("__pycache__/\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "modules")
    for name in ("known", "stale"):
        py_compile.compile(str(repository / "sub" / f"{name}.py"))
    py_compile.compile(str(repository / "sub" / "known.py"), cfile=cache(repository, "broken"))
    os.utime(repository / "sub" / "broken.py", ((repository / "sub" / "known.py").stat().st_mtime,) * 2)
    (repository / "sub" / "stale.py").write_text("VALUE = 20\n")
    return repository


def cache(root: Path, name: str) -> str:
    return importlib.util.cache_from_source(str(root / "sub" / f"{name}.py"))


def test_modules_that_the_working_tree_has_compiled_are_compiled(compiled: Path, git: Any) -> None:
    with at_revision("HEAD", compiled) as side:
        there = {path.name.partition(".")[0] for path in (side.cwd / "sub" / "__pycache__").iterdir()}
        assert there == {"known"}
        assert not (side.cwd / "__pycache__").exists(), "train.py was never imported"
        assert str(side.cwd).encode() in Path(cache(side.cwd, "known")).read_bytes(), "tracebacks name its own files"
        assert git(side.cwd, "status", "--porcelain") == ""


def test_a_cache_prefix_of_the_user_is_clean_after(
    compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "prefix"
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(prefix))
    monkeypatch.setattr(sys, "pycache_prefix", str(prefix))
    py_compile.compile(str(compiled / "sub" / "known.py"))
    with at_revision("HEAD", compiled) as side:
        assert not (side.cwd / "sub" / "__pycache__").exists()
        assert Path(cache(side.cwd, "known")).exists()
        tree = side.cwd
    assert not (prefix / tree.parent.relative_to("/")).exists()
    assert Path(cache(compiled, "known")).exists(), "that of the working tree is the user's"


def test_byte_code_is_not_linked(compiled: Path) -> None:
    """Through a link each side would overwrite what the other has compiled."""
    (compiled / "sub" / "data.bin").write_text("d")
    with at_revision("HEAD", compiled, links=["sub"]) as side:
        assert (side.cwd / "sub" / "data.bin").is_symlink()
        assert not (side.cwd / "sub" / "__pycache__").is_symlink()
