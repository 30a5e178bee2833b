"""Byte code: a revision's side has that of the modules of which the working tree has it, and none of the other's."""

from __future__ import annotations

import importlib.util
import os
import py_compile
import sys
from pathlib import Path
from typing import Any

import pytest

from profiler.check.worktree import prepared

pytestmark = pytest.mark.usefixtures("asked_once")


def quiet(line: str) -> None:
    pass


def at_head(repository: Path, *links: str) -> Any:
    return prepared("HEAD", (sys.executable, "train.py"), cwd=repository, links=links, say=quiet)


@pytest.fixture
def compiled(repository: Path, git: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Modules of the working tree: compiled, compiled before it was changed, never compiled, not to be compiled."""
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


def test_what_the_working_tree_has_compiled_is_compiled(compiled: Path, git: Any) -> None:
    with at_head(compiled) as side:
        there = {path.name.partition(".")[0] for path in (side.cwd / "sub" / "__pycache__").iterdir()}
        assert there == {"known"}
        assert not (side.cwd / "__pycache__").exists(), "train.py was never imported"
        assert str(side.cwd).encode() in Path(cache(side.cwd, "known")).read_bytes(), "tracebacks name its own files"
        assert git(side.cwd, "status", "--porcelain") == ""


def test_below_a_prefix_of_the_users_nothing_stays(
    compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "prefix"
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(prefix))
    monkeypatch.setattr(sys, "pycache_prefix", str(prefix))
    py_compile.compile(str(compiled / "sub" / "known.py"))
    with at_head(compiled) as side:
        assert not (side.cwd / "sub" / "__pycache__").exists()
        assert Path(cache(side.cwd, "known")).exists()
        tree = side.cwd
    assert not (prefix / tree.parent.relative_to("/")).exists()
    assert Path(cache(compiled, "known")).exists(), "that of the working tree is the user's"


def test_byte_code_is_never_shared(compiled: Path) -> None:
    """Through a link each side would overwrite what the other has compiled."""
    (compiled / "sub" / "data.bin").write_text("d")
    with at_head(compiled, "sub") as side:
        assert (side.cwd / "sub" / "data.bin").is_symlink()
        assert not (side.cwd / "sub" / "__pycache__").is_symlink()
