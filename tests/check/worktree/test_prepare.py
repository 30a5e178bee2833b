"""A revision beside the working tree: its files and its command, and that nothing of the user's is touched."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profiler.check.worktree.prepare import working_tree_side
from tests.check.worktree.conftest import COMMAND, assert_refused, at_revision, output

pytestmark = pytest.mark.usefixtures("inspected_once")


def state(root: Path, git: Any) -> tuple[str, ...]:
    """Everything of the user's that a check might disturb."""
    index = (root / ".git" / "index").read_bytes().hex()
    config = (root / ".git" / "config").read_text()
    listed = git(root, "worktree", "list", "--porcelain")
    status = git(root, "status", "--porcelain", "--ignored")
    return index, config, listed, status, git(root, "branch", "--all"), git(root, "stash", "list")


def test_the_revision_runs_and_nothing_of_the_users_is_touched(repository: Path, tmp_path: Path, git: Any) -> None:
    (repository / "train.py").write_text("print('changed')\n")
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    before = state(repository, git)
    with at_revision("HEAD~1", repository) as side:
        assert output(side) == "1"
        assert side.commit == git(repository, "rev-parse", "HEAD~1")
        assert side.what == f"HEAD~1 ({side.commit[:7]})"
        assert side.notes == ()
        assert not side.cwd.is_relative_to(repository)
        assert side.cwd.name == "project", "tracebacks and logs show the name that people know"
        (side.cwd / "left.txt").write_text("of the program")
    assert state(repository, git) == before
    assert not (tmp_path / "hooked").exists(), "a hook of the user's ran"


@pytest.mark.parametrize("ending", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_it_is_removed_after_any_end(repository: Path, ending: type[BaseException]) -> None:
    """The fixture `repository` looks for remains."""
    with pytest.raises(ending), at_revision("HEAD", repository):
        raise ending


def test_only_the_remains_of_killed_checks_are_removed_by_the_next(repository: Path, tmp_path: Path, git: Any) -> None:
    script = (
        "import sys, tempfile; from pathlib import Path; tempfile.tempdir = sys.argv[2]\n"
        "from profiler.check.worktree.prepare import prepare_revision\n"
        "with prepare_revision('HEAD', ('true',), Path(sys.argv[1]), print):\n"
        "    print('ready', flush=True); sys.stdin.read()\n"
    )
    words = [sys.executable, "-c", script, str(repository), str(tmp_path / "tmp")]
    processes = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    killed, living = processes
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    git(repository, "worktree", "add", "--detach", str(tmp_path / "of-the-user"))
    (tmp_path / "of-the-user").rename(tmp_path / "moved-for-now")
    assert git(repository, "worktree", "list").count("\n") == 3
    with at_revision("HEAD", repository):
        pass
    assert len(list((tmp_path / "tmp").iterdir())) == 1, "that of the living check is there, the other gone"
    assert git(repository, "worktree", "list").count("\n") == 2
    living.communicate("")
    assert living.returncode == 0
    assert git(repository, "worktree", "list").count("\n") == 1
    assert "of-the-user" in git(repository, "worktree", "list"), "a worktree of the user's was pruned"


def test_the_folder_and_the_arguments_are_those_of_the_revision(repository: Path) -> None:
    words = (sys.executable, f"{repository}/train.py", f"--config={repository}/sub/part.txt", "/etc/hosts", "--x=1")
    with at_revision("HEAD~1", repository / "sub", words) as side:
        tree = side.cwd.parent
        assert side.cwd.name == "sub"
        assert side.argv == (sys.executable, f"{tree}/train.py", f"--config={tree}/sub/part.txt", *words[3:])
        assert (side.cwd / "part.txt").read_text() == "1\n"


def test_a_temporary_folder_in_the_repository_is_unused(
    repository: Path, monkeypatch: pytest.MonkeyPatch, git: Any
) -> None:
    (repository / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(repository / "tmp"))
    with at_revision("HEAD", repository) as side:
        assert not side.cwd.is_relative_to(repository)
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("revs", "message"),
    [
        (("-f", "--detach", "", "HEAD\n"), "is not a revision"),
        (("nowhere", "HEAD~99", "HEAD..HEAD~1", "^HEAD", "HEAD:train.py"), "no such revision"),
    ],
)
def test_a_bad_revision_is_one_line(repository: Path, revs: tuple[str, ...], message: str) -> None:
    for rev in revs:
        assert_refused(message, rev, repository)


def test_a_clone_without_the_revision_tells_how_to_fetch_it(repository: Path, tmp_path: Path, git: Any) -> None:
    git(repository, "branch", "other", "HEAD~1")
    for option, rev, message in (
        ("--depth=1", "HEAD~1", r"fetch-depth: 0.*git fetch --unshallow$"),
        ("--single-branch", "other", "git fetch origin other"),
    ):
        git(tmp_path, "clone", "--quiet", option, f"file://{repository}", rev)
        assert_refused(message, rev, tmp_path / rev)
    with at_revision("HEAD", tmp_path / "HEAD~1") as side:
        assert output(side) == "2"


def test_every_way_to_name_a_commit(repository: Path, git: Any) -> None:
    first = git(repository, "rev-parse", "HEAD~1")
    git(repository, "tag", "-a", "-m", "a tag", "v1", first)
    git(repository, "worktree", "add", "--detach", "../linked")
    for rev in ("HEAD^", "main~1", "v1", first[:8], "main@{0}~1", ":/number 1"):
        with at_revision(rev, repository.parent / "linked" / "sub") as side:
            assert side.commit == first, rev
            assert (side.cwd / "part.txt").read_text() == "1\n"


def test_where_nothing_can_be_checked_out(tmp_path: Path, git: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain").mkdir()
    git(tmp_path, "init", "--quiet", "--bare", "bare.git")
    git(tmp_path, "init", "--quiet", "empty")
    for folder, message in (("plain", "no git repository"), ("bare.git", "bare"), ("empty", "no commit yet")):
        assert_refused(message, "HEAD", tmp_path / folder)
    monkeypatch.setenv("PATH", str(tmp_path / "plain"))
    assert_refused("there is none on PATH", "HEAD", tmp_path / "empty")


def test_a_folder_or_a_program_that_the_revision_does_not_have(repository: Path) -> None:
    (repository / "new").mkdir()
    (repository / "run.sh").write_text("#!/bin/sh\n")
    assert_refused("HEAD has no folder new", "HEAD", repository / "new")
    assert_refused(r"--link \./run\.sh", "HEAD", repository, ("./run.sh",))


def test_started_from_a_hook_of_git(repository: Path, monkeypatch: pytest.MonkeyPatch, git: Any) -> None:
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository / ".git" / "index"))
    with at_revision("HEAD~1", repository) as side:
        assert (side.cwd / "train.py").read_text() == "print(1)\n"
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert git(repository, "status", "--porcelain") == ""


def test_pwd_names_the_folder_of_each_side(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell that has come from elsewhere, by a link; and where no shell tells it right."""
    (tmp_path / "spelled").symlink_to(repository)
    monkeypatch.setenv("PWD", str(tmp_path / "spelled"))
    monkeypatch.setenv("OLDPWD", str(repository / "sub"))
    words = ("sh", "-c", 'cat "$PWD/train.py"; echo "${OLDPWD:-nowhere}"')
    with at_revision("HEAD~1", repository, words) as side:
        assert output(side) == "print(1)\nnowhere"
        assert side.env["PWD"] == str(side.cwd)
    assert output(working_tree_side(words, repository)) == "print(2)\nnowhere"
    assert working_tree_side(words, repository).env["PWD"] == str(tmp_path / "spelled"), "the spelling is the user's"
    for wrong in (str(tmp_path), "project", ""):
        monkeypatch.setenv("PWD", wrong)
        assert working_tree_side(words, repository).env["PWD"] == str(repository)
    monkeypatch.delenv("OLDPWD")
    assert working_tree_side(words, tmp_path).env == {"PWD": str(tmp_path)}


def test_the_working_tree_is_described(repository: Path, tmp_path: Path, git: Any) -> None:
    head = git(repository, "rev-parse", "HEAD")
    side = working_tree_side(COMMAND, repository / "sub")
    assert (side.argv, side.cwd, side.other_filesystem) == (COMMAND, repository / "sub", False)
    assert (side.what, side.commit) == (f"working tree ({head[:7]})", head)
    (repository / "new.py").write_text("")
    assert working_tree_side(COMMAND, repository).what == f"working tree ({head[:7]}+changes)"
    (tmp_path / "plain").mkdir()
    side = working_tree_side(COMMAND, tmp_path / "plain")
    assert (side.what, side.commit, side.repository) == ("working tree", "", None)
