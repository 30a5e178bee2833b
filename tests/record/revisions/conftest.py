"""A small repository of a user, in which every command of git is quiet and nobody's configuration is read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Git = Callable[..., str]


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
def git(alone: None) -> Git:
    """Runs git in a folder and gives what it printed."""

    def run(folder: Path, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"git {' '.join(words)}: {done.stderr}"
        return done.stdout.strip()

    return run


@pytest.fixture
def repository(tmp_path: Path, git: Git) -> Path:
    """Two commits; the files of each say which it is."""
    root = tmp_path / "project"
    (root / "sub").mkdir(parents=True)
    git(root, "init", "--quiet")
    for number in (1, 2):
        (root / "train.py").write_text(f"print({number})\n")
        (root / "sub" / "part.txt").write_text(f"{number}\n")
        (root / ".gitignore").write_text("data/\n*.bin\n")
        git(root, "add", ".")
        git(root, "commit", "--quiet", "-m", f"number {number}")
    return root
