"""Where a worktree lies, which check owns it, and errors of a full disk or a read-only repository."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from profiler.check.worktree import checkout
from profiler.check.worktree.checkout import (
    PREFIX,
    Repository,
    check_pid,
    host_name,
    locations,
    on_other_filesystem,
)
from tests.check.worktree.conftest import assert_refused, at_revision

pytestmark = pytest.mark.usefixtures("inspected_once")


def ended_pid() -> int:
    """A process id that is nobody's any more."""
    with subprocess.Popen(["true"]) as process:
        pass
    return process.pid


# ---------------------------------------------------------------- where


@pytest.fixture
def other_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder that is in memory, where the tests' is not."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or not on_other_filesystem(memory, tmp_path):
        pytest.skip("no second file system here")
    folder = Path(tempfile.mkdtemp(dir=memory))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


def test_it_lies_on_the_file_system_of_the_checkout(repository: Path, other_disk: Path, git: Any) -> None:
    before = git(repository, "status", "--porcelain", "--ignored")
    with at_revision("HEAD~1", repository) as side:
        assert side.cwd.stat().st_dev == repository.stat().st_dev
        assert not side.other_filesystem
        assert not side.cwd.is_relative_to(repository), "a program that walks through its checkout would find it"
        assert git(repository, "status", "--porcelain", "--ignored") == before


def test_within_another_checkout_it_lies_in_gits_own_folder(repository: Path, other_disk: Path, git: Any) -> None:
    git(repository.parent, "init", "--quiet")
    outer = git(repository.parent, "status", "--porcelain")
    with at_revision("HEAD~1", repository) as side:
        assert side.cwd.is_relative_to(repository / ".git")
        assert (side.cwd / "train.py").read_text() == "print(1)\n"
        assert git(side.cwd, "status", "--porcelain") == ""
        assert git(repository.parent, "status", "--porcelain") == outer
        assert git(repository, "status", "--porcelain", "--ignored") == ""


def test_another_file_system_is_told(
    repository: Path, other_disk: Path, monkeypatch: pytest.MonkeyPatch, git: Any
) -> None:
    real = tempfile.mkdtemp

    def refused(*, prefix: str, dir: Path) -> str:  # noqa: A002 - its name there
        if dir != other_disk:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(prefix=prefix, dir=dir)

    monkeypatch.setattr(checkout.tempfile, "mkdtemp", refused)
    with at_revision("HEAD~1", repository) as side:
        assert side.cwd.is_relative_to(other_disk)
        assert side.other_filesystem
    assert list(other_disk.iterdir()) == []


def test_the_temporary_folder_is_used_if_it_is_on_the_same_file_system(repository: Path, tmp_path: Path) -> None:
    assert locations(Repository(repository)) == (tmp_path / "tmp", tmp_path, repository / ".git")
    assert not on_other_filesystem(tmp_path / "tmp", repository)
    assert on_other_filesystem(tmp_path / "nowhere", repository)


# ---------------------------------------------------------------- whose


def test_a_folder_is_named_after_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout.socket, "gethostname", lambda: "node/7-b")
    host = host_name()
    assert host.startswith("node_7-b.")
    assert check_pid(Path("/tmp") / f"{PREFIX}{host}-41-x_1") == 41
    for name in (f"{PREFIX}node_7-41-x", f"{PREFIX}b-41-x", f"{PREFIX}{host}-x", f"{host}-41-x", PREFIX):
        assert check_pid(Path(name)) is None, name


def abandoned(parent: Path) -> Path:
    """The folder of a check that has ended."""
    folder = parent / f"{PREFIX}{host_name()}-{ended_pid()}-a"
    folder.mkdir(parents=True)
    return folder


def test_git_forgets_a_worktree_whose_folder_is_gone(repository: Path, tmp_path: Path, git: Any) -> None:
    """git forgets only those of checks on this host that have ended: others may have their folder on another host."""
    names = {
        f"{PREFIX}{host_name()}-{ended_pid()}-a": False,
        f"{PREFIX}{host_name()}-{os.getpid()}-b": True,
        f"{PREFIX}another-host-{ended_pid()}-c": True,
    }
    for name in names:
        git(repository, "worktree", "add", "--detach", str(tmp_path / "tmp" / name / "project"))
        shutil.rmtree(tmp_path / "tmp" / name)
    with at_revision("HEAD~1", repository):
        pass
    listed = git(repository, "worktree", "list")
    assert {name: name in listed for name in names} == names
    git(repository, "worktree", "prune")


def test_abandoned_worktrees_are_removed_wherever_they_are(repository: Path, tmp_path: Path, git: Any) -> None:
    """Made with another TMPDIR, and by a check in another worktree of the same repository."""
    git(repository, "worktree", "add", "--detach", str(tmp_path / "linked"))
    folder = abandoned(tmp_path / "other-tmp")
    git(tmp_path / "linked", "worktree", "add", "--detach", str(folder / "linked"))
    with at_revision("HEAD~1", repository):
        pass
    assert not folder.exists()
    assert git(repository, "worktree", "list").count("\n") == 1


# ---------------------------------------------------------------- interrupted, no room


def test_git_completes_before_ctrl_c_is_handled(repository: Path, tmp_path: Path, git: Any) -> None:
    """One that is killed half-way leaves what another git cannot remove."""
    os.mkfifo(tmp_path / "go")
    replace_git(tmp_path, f'echo begun > "{tmp_path}/go"; read line < "{tmp_path}/go"; touch "{tmp_path}/ended"')
    script = (
        "import sys, tempfile; from pathlib import Path; tempfile.tempdir = sys.argv[2]\n"
        "from profiler.check.worktree.prepare import prepare_revision\n"
        "with prepare_revision('HEAD', ('true',), Path(sys.argv[1]), print): pass\n"
    )
    command = [sys.executable, "-c", script, str(repository), str(tmp_path / "tmp")]
    environment = {**os.environ, "PATH": f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert (tmp_path / "go").read_text() == "begun\n"
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.6)  # more than the patience that Python has with a child after Ctrl-C
        go = os.open(tmp_path / "go", os.O_RDWR)  # it waits for no reader, as there is none where git was killed
        os.write(go, b"\n")
        _, errors = process.communicate()
        os.close(go)
    assert "KeyboardInterrupt" in errors
    assert (tmp_path / "ended").exists()


def replace_git(folder: Path, then: str) -> None:
    """A git that does something more after a worktree was added."""
    (folder / "bin").mkdir()
    (folder / "bin" / "git").write_text(
        f'#!/bin/sh\n{shutil.which("git")} "$@" || exit\ncase " $* " in *" worktree add "*)\n{then};; esac\n'
    )
    (folder / "bin" / "git").chmod(0o755)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("checkout.tempfile.mkdtemp", r"none can be made \(.*/tmp: No space left on device; .*project/\.git: No space"),
        ("prepare.link_files", "cannot make HEAD~1 ready in .*: No space left on device"),
    ],
)
def test_a_full_disk_is_a_line(repository: Path, monkeypatch: pytest.MonkeyPatch, function: str, message: str) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"profiler.check.worktree.{function}", refused, raising=False)
    assert_refused(message, "HEAD~1", repository)


def test_a_repository_that_cannot_be_written(repository: Path, git: Any) -> None:
    """A file in the place of git's folder refuses everybody, root too."""
    (repository / ".git" / "worktrees").write_text("")
    assert_refused("git cannot check out [0-9a-f]{12} in .*worktrees", "HEAD~1", repository)
    (repository / ".git" / "worktrees").unlink()


def test_no_room_for_the_files(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A git that gives up half-way through the checkout."""
    replace_git(tmp_path, 'echo "error: unable to write file train.py" >&2; exit 128')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    monkeypatch.setattr("profiler.check.worktree.checkout._LOW_SPACE", 1 << 62)
    assert_refused(r"unable to write file train\.py \(\d+ MiB are free there\)", "HEAD~1", repository)
