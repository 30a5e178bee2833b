"""git: a repository of other people is read without running any program that it names."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler.core.git import read_git, run_git
from profiler.record.collectors.host import git_commit
from tests.fakes.programs import ROOT

Configure = Callable[[Path, str], None]


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, and a file that git has to read again: its time is not that of the index."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q")
    (root / "data").write_text("1")
    git(root, "add", "data")
    git(root, "commit", "-qm", "a")
    os.utime(root / "data", (1, 1))
    return root


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """What each configured program makes."""
    return tmp_path / "a program ran"


def monitor(root: Path, program: str) -> None:
    git(root, "config", "core.fsmonitor", program)


def hook(root: Path, program: str) -> None:
    (root / ".git" / "hooks").mkdir(exist_ok=True)
    (root / ".git" / "hooks" / "post-index-change").symlink_to(program)


def clean(root: Path, program: str) -> None:
    (root / ".gitattributes").write_text("* filter=mine\n")
    git(root, "config", "filter.mine.clean", program)
    git(root, "config", "filter.mine.required", "true")


def process(root: Path, program: str) -> None:
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "attributes").write_text("* filter=Mine\n")
    git(root, "config", "filter.Mine.process", program)


def clean_with_an_equals_sign(root: Path, program: str) -> None:
    (root / ".gitattributes").write_text("* filter=a=b\n")
    git(root, "config", "filter.a=b.clean", program)


def monitor_of_a_submodule(root: Path, program: str) -> None:
    git(root, "submodule", "add", "-q", str(root), "sub")
    monitor(root / "sub", program)
    git(root / "sub", "config", "filter.mine.clean", program)
    git(root / "sub", "config", "core.attributesFile", str(root.parent / "attributes"))
    (root.parent / "attributes").write_text("* filter=mine\n")
    os.utime(root / "sub" / "data", (1, 1))


def transport(root: Path, program: str) -> None:
    """A clone that lacks the folders of its commit, and a server that is reached by a program."""
    tree = git(root, "rev-parse", "HEAD^{tree}")
    (root / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    for key, value in {
        "remote.origin.url": "ssh://there/repository",
        "remote.origin.promisor": "true",
        "extensions.partialClone": "origin",
        "core.repositoryFormatVersion": "1",
        "core.sshCommand": program,
    }.items():
        git(root, "config", key, value)


@pytest.mark.parametrize(
    ("configure", "end"),
    [
        (monitor, ""),
        (hook, ""),
        (clean, ""),
        (process, ""),
        (clean_with_an_equals_sign, None),
        (monitor_of_a_submodule, "+changes"),  # the submodule is new
        (transport, "+unknown"),
    ],
)
def test_no_program_that_a_repository_names_is_run(
    configure: Configure, end: str | None, repository: Path, marker: Path
) -> None:
    program = repository.parent / "program"
    program.write_text(f"#!/bin/sh\ntouch '{marker}'\n")
    program.chmod(0o755)
    configure(repository, str(program))
    marker.unlink(missing_ok=True)  # configuring may have run it
    index = (repository / ".git" / "index").read_bytes()
    expected = None if end is None else git(repository, "rev-parse", "HEAD") + end
    assert git_commit(repository) == expected
    assert not marker.exists()
    assert (repository / ".git" / "index").read_bytes() == index
    subprocess.run(["git", "status"], cwd=repository, capture_output=True, check=False)
    assert marker.exists(), "git itself runs it, so the test proves something"


def test_a_filter_that_is_left_out(repository: Path) -> None:
    """Only a file that git has to read again shows that its filter is off, and `check` uses the filter."""
    (repository / ".gitattributes").write_text("data filter=mine\n")
    git(repository, "config", "filter.mine.clean", "echo 1; true")
    (repository / "data").write_text("2")
    os.utime(repository / "data", (2, 2))
    git(repository, "add", "data")
    git(repository, "commit", "-qm", "b")
    commit = git(repository, "rev-parse", "HEAD")
    assert git_commit(repository) == commit
    os.utime(repository / "data", (1, 1))
    assert git_commit(repository) == f"{commit}+changes"
    status = run_git(repository, ["status", "--porcelain", "--untracked-files=no"])
    assert (status.code, status.out) == (0, "")


def test_a_git_that_hangs_is_killed(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nread line < gate\n")
    (tmp_path / "git").chmod(0o755)
    os.mkfifo(repository / "gate")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert read_git(repository, ["status"], 0.1) is None


def test_nothing_else_starts_git() -> None:
    starts = re.compile(r"""["']git["']""")
    files = [path for path in (ROOT / "profiler").rglob("*.py") if starts.search(path.read_text(encoding="utf-8"))]
    assert files == [ROOT / "profiler" / "core" / "git.py"]
