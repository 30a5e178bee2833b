"""A user's small repository; git is quiet and reads no configuration of whoever runs the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from profiler.check.worktree.checkout import PREFIX, host_name
from profiler.check.worktree.environment import inspect_interpreter
from profiler.check.worktree.prepare import PreparedSide, prepare_revision
from profiler.core.errors import Exit, ProfilerError

Git = Callable[..., str]
COMMAND = (sys.executable, "train.py")
inspect_once = cache(inspect_interpreter)


def at_revision(
    rev: str, cwd: Path, argv: tuple[str, ...] = COMMAND, **options: Any
) -> AbstractContextManager[PreparedSide]:
    """`argv` of a repository at `rev`; `announce` and other parameters of `prepare_revision` as options."""
    announce = options.pop("announce", lambda line: None)
    return prepare_revision(rev, argv, cwd, announce, **options)


def assert_refused(message: str, rev: str, cwd: Path, argv: tuple[str, ...] = COMMAND, **options: Any) -> str:
    """The error of `at_revision`, which is one line and matches `message`."""
    with pytest.raises(ProfilerError, match=message) as caught, at_revision(rev, cwd, argv, **options):
        pass
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == Exit.USAGE
    return str(caught.value)


def output(side: PreparedSide) -> str:
    """The output of the side's command."""
    environment = {**os.environ, **side.env}
    process = subprocess.run(side.argv, cwd=side.cwd, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


@pytest.fixture
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def inspected_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """This Python is inspected once for all tests, because each time starts it."""
    monkeypatch.setattr(
        "profiler.check.worktree.prepare.inspect_interpreter", lambda python, cwd: inspect_once(python, Path.home())
    )


@pytest.fixture
def git(clean_environment: None) -> Git:
    """Runs git in a folder and returns what it printed."""

    def run(folder: Path, *arguments: str) -> str:
        process = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
        assert process.returncode == 0, f"git {' '.join(arguments)}: {process.stderr}"
        return process.stdout.strip()

    return run


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two commits; the files of each contain its number."""
    root = tmp_path_factory.mktemp("template") / "project"
    (root / "sub").mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    base = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    for number in (1, 2):
        (root / "train.py").write_text(f"print({number})\n")
        (root / "sub" / "part.txt").write_text(f"{number}\n")
        (root / ".gitignore").write_text("data/\n*.bin\n")
        for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", f"number {number}"]):
            subprocess.run([*base, *command], cwd=root, env=environment, check=True)
    return root


@pytest.fixture
def repository(template: Path, tmp_path: Path, git: Git) -> Iterator[Path]:
    """A private copy, near which checks leave nothing behind."""
    root = Path(shutil.copytree(template, tmp_path / "project", symlinks=True))
    git(root, "status")  # refreshes the index: the copies have other times
    yield root
    parents = (tmp_path, tmp_path / "tmp", root / ".git")
    assert [folder for parent in parents for folder in parent.glob(f"{PREFIX}*{host_name()}-{os.getpid()}-*")] == []
    assert f"{PREFIX}{host_name()}-{os.getpid()}-" not in git(root, "worktree", "list")
