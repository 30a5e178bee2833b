"""A small repository of a user, in which every command of git is quiet and nobody's configuration is read."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from profiler.check.worktree.interpreter import asked

Git = Callable[..., str]
said = cache(asked)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration, cache or variable of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith(("GIT_", "PIP_")) or name == "PYTHONPATH"]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "home" / "gitconfig"))
    (tmp_path / "home" / "gitconfig").write_text(
        "[user]\nname = A\nemail = a@example.org\n[init]\ndefaultBranch = main\n"
    )
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """This Python says once for all tests what it has: every time costs a start of it."""
    monkeypatch.setattr("profiler.check.worktree.prepare.asked", lambda python, cwd: said(python, Path.home()))


@pytest.fixture
def git(alone: None) -> Git:
    """Runs git in a folder and gives what it printed."""

    def run(folder: Path, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"git {' '.join(words)}: {done.stderr}"
        return done.stdout.strip()

    return run


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two commits; the files of each say which it is."""
    root = tmp_path_factory.mktemp("made") / "project"
    (root / "sub").mkdir(parents=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    words = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    for number in (1, 2):
        (root / "train.py").write_text(f"print({number})\n")
        (root / "sub" / "part.txt").write_text(f"{number}\n")
        (root / ".gitignore").write_text("data/\n*.bin\n")
        for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", f"number {number}"]):
            subprocess.run([*words, *command], cwd=root, env=kept, check=True)
    return root


@pytest.fixture
def repository(made: Path, tmp_path: Path, git: Git) -> Path:
    """A copy of one's own."""
    root = Path(shutil.copytree(made, tmp_path / "project", symlinks=True))
    git(root, "status")  # refreshes the index: the copies have times of their own
    return root
