"""What became of the files of a program since its baseline, with git and without it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from profiler.check.diff import compare_texts, content_id, content_ids, file_changes

TEXT = "import torch\n\n\ndef step(x):\n    y = model(x)\n    return y.item()\n"


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "train.py").write_text(TEXT)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_ids_are_those_of_git(repository: Path) -> None:
    assert content_id(TEXT.encode()) == git(repository, "rev-parse", "HEAD:train.py").strip()
    files = ("train.py", "torch/optim/sgd.py", "…/lib/a.py", "/etc/hostname", "../x.py", "", "(compiled)")
    assert list(content_ids(files, str(repository))) == ["train.py"]
    assert content_ids(files, "") == {}


def test_an_unchanged_file_needs_no_git(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TEXT)
    (change,) = file_changes(content_ids(["train.py"], str(tmp_path)), ["train.py"], str(tmp_path))
    assert (change.base, change.candidate, change.same[6], change.replaced) == ("train.py", "train.py", 6, ())


def test_files_of_the_repository_above_the_root_are_its_own(repository: Path) -> None:
    (repository / "projects" / "small").mkdir(parents=True)
    (repository.parent / "elsewhere.py").write_text(TEXT)
    root, file = str(repository / "projects" / "small"), "../../train.py"
    before = content_ids([file, "../../../elsewhere.py"], root)
    assert list(before) == [file]
    (repository / "train.py").write_text(f"# new\n{TEXT}    # end\n")
    (change,) = file_changes(before, [file], root)
    assert (change.candidate, change.same[6]) == (file, 5)
    assert [hunk.file for hunk in change.hunks] == [file]


def test_the_former_text_comes_from_git_whatever_was_committed_since(repository: Path) -> None:
    before = content_ids(["train.py"], str(repository))
    (repository / "train.py").write_text("# new\n" + TEXT.replace("y.item()", "float(y)"))
    for message in ("second", "third"):
        (change,) = file_changes(before, ["train.py"], str(repository))
        assert change.same[6] == 5
        assert change.replaced == ((range(6, 7), range(7, 8)),)
        assert "+    return float(y)" in [line for hunk in change.hunks for line in hunk.lines]
        git(repository, "commit", "-qam", message, "--allow-empty")


def test_a_renamed_file_is_recognized_and_another_one_is_not(repository: Path) -> None:
    before = content_ids(["train.py"], str(repository))
    (repository / "train.py").rename(repository / "fit.py")
    (repository / "other.py").write_text("print('nothing in common')\n" * 5)
    (change,) = file_changes(before, ["other.py", "fit.py"], str(repository))
    assert (change.base, change.candidate, change.same[6]) == ("train.py", "fit.py", 6)


def test_without_the_former_text_nothing_is_known(tmp_path: Path, repository: Path) -> None:
    (repository / "train.py").write_text("x\n")
    assert file_changes({"train.py": content_id(b"never committed\n")}, ["train.py"], str(repository)) == ()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "train.py").write_text("x\n")
    assert file_changes({"train.py": "0" * 40}, ["train.py"], str(outside)) == ()


def test_indentation_does_not_make_a_line_new() -> None:
    change = compare_texts("a.py", "a.py", "x = 1\ny = x.item()\n", "if True:\n    x = 1\n    y = x.item()\n")
    assert change.same == {2: 1, 3: 2}
