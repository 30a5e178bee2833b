"""What git says has changed in the files of a program, and the diffs that it is read from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from profiler.check.diff import SourceDiff, changed_lines, new_files, parse_diff
from profiler.check.model import Hunk
from profiler.check.places import is_code
from profiler.check.worktree.checkout import Repository
from profiler.core.errors import ProfilerError
from tests.check.worktree.conftest import Git

pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def program(repository: Path, git: Git) -> SourceDiff:
    """A checkout whose program was started in the folder `job`, and that has changed since its commit."""
    job = repository / "job"
    job.mkdir()
    (job / "step.py").write_text("".join(f"line {number}\n" for number in range(1, 31)))
    (job / "ä b.py").write_text("a = 1\n")
    (repository / "lib.py").write_text("b = 1\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "two")
    lines = [f"line {number}\n" for number in range(1, 31)]
    lines[4:6] = ["changed\n"]
    lines.insert(20, "+ added\n")
    (job / "step.py").write_text("".join(lines))
    (job / "ä b.py").write_text("a = 2")
    (repository / "lib.py").write_text("b = 2\n")
    root = Repository.find(repository).root
    return SourceDiff(root, Repository(root).head(), job, job)


def test_hunks_have_the_lines_of_both_versions(program: SourceDiff) -> None:
    hunks = program.hunks(["step.py", "ä b.py", "../lib.py"])
    assert hunks is not None
    first, second, odd, outside = hunks
    assert (first.file, first.base, first.line) == ("step.py", 2, 2)
    assert first.lines[2:7] == (" line 4", "-line 5", "-line 6", "+changed", " line 7")
    assert [line for line in second.lines if not line.startswith(" ")] == ["++ added"]
    assert odd == Hunk("ä b.py", 1, 1, ("-a = 1", "+a = 2"))
    assert (outside.file, outside.lines) == ("../lib.py", ("-b = 1", "+b = 2"))


def test_of_new_files_only_those_that_are_asked_for_are_there(program: SourceDiff, tmp_path: Path) -> None:
    for name in ("new.py", "scratch.py"):
        (program.folder / name).write_text("x = 1\n")
    others = {"step.py", "ä b.py", "../lib.py"}
    for asked, more in (
        (["new.py", "missing.py", "/usr/lib/os.py", str(tmp_path / "x.py"), ""], {"new.py"}),
        ([], set()),
    ):
        hunks = program.hunks(asked)
        assert hunks is not None
        assert {hunk.file for hunk in hunks} == others | more
        assert all(hunk.lines == ("+x = 1",) for hunk in hunks if hunk.file == "new.py")


def test_the_files_that_are_asked_for_come_first_then_those_that_the_program_runs(program: SourceDiff) -> None:
    (program.repository / "settings.yaml").write_text("layers: 3\n")
    (program.folder / "data.bin").write_text("1\n")
    for files, expected in ((["step.py"], ["step.py", "../lib.py"]), ([], ["../lib.py"])):
        hunks = replace(program, files=("../lib.py",)).hunks(files)
        assert hunks is not None
        assert list(dict.fromkeys(hunk.file for hunk in hunks))[: len(expected)] == expected


def test_without_git_nothing_is_known(program: SourceDiff) -> None:
    unknown = SourceDiff(program.repository, "0" * 40, program.folder, program.folder)
    assert unknown.hunks(["step.py"]) is None


def test_a_diff_without_hunks_is_empty() -> None:
    assert list(parse_diff("x", "")) == []
    assert list(parse_diff("x", "diff --git a/x b/x\nBinary files a/x and b/x differ\n")) == []


def test_the_changed_lines_of_code_with_those_of_new_and_of_moved_files(program: SourceDiff, git: Git) -> None:
    (program.folder / "new.py").write_text("four = 4\n")
    git(program.repository, "mv", "job/step.py", "job/moved.py")
    found = changed_lines(program.repository, program.commit)
    job = program.repository / "job"
    assert found == {
        str(job / "moved.py"): {5, 21},
        str(job / "ä b.py"): {1},
        str(job / "new.py"): {1},
        str(program.repository / "lib.py"): {1},
    }
    assert new_files(program.repository) == {str(job / "new.py")}
    with pytest.raises(ProfilerError, match="git cannot tell"):
        changed_lines(program.repository, "no-such-commit")


def test_lines_without_code_are_none_that_a_step_could_run() -> None:
    lines = {"x = 1": True, "    # why": False, "    )": False, "": False, "def f():": False, "x()  # y": True}
    assert {line: is_code(line) for line in lines} == lines
