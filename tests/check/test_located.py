"""Files of sites as every machine has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.check.located import COMPILED, folder_of, place_of, shown, text_of
from tests.recorded.builders import RunBuilder


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/srv/me/project/train.py", "train.py"),
        ("/srv/me/project/lib/model.py", "lib/model.py"),
        ("/srv/me/shared/data.py", "../shared/data.py"),
        ("/opt/x/y/lib/z.py", "…/lib/z.py"),
        ("/srv/me/project/.venv/lib/python3.11/site-packages/torch/optim/sgd.py", "torch/optim/sgd.py"),
        ("/usr/lib/python3.12/random.py", "random.py"),
        ("/usr/lib/python3/dist-packages/yaml/nodes.py", "yaml/nodes.py"),
        ("/tmp/torchinductor_me/ab/cabcd.py", COMPILED),
        ("train.py", "train.py"),
        ("<string>", "<string>"),
        ("", ""),
        ("/srv/me/project/\udcff.py", "?.py"),
    ],
)
def test_nothing_of_the_machine_is_in_it(file: str, expected: str) -> None:
    assert shown(file, "/srv/me/project") == expected


def test_a_file_behind_a_symbolic_link_is_the_one_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").touch()
    (tmp_path / "link").symlink_to(tmp_path / "project")
    assert shown(f"{tmp_path}/link/train.py", str(tmp_path / "project")) == "train.py"


@pytest.mark.parametrize(("mark", "outer"), [(".git", "pyproject.toml"), ("pyproject.toml", "")])
def test_from_outside_of_a_project_files_are_told_from_it(tmp_path: Path, mark: str, outer: str) -> None:
    project, package = tmp_path / "code" / "project", tmp_path / "code" / "project" / "package"
    package.mkdir(parents=True)
    (project / mark).touch()
    if outer:
        (package / outer).touch()
    script = str(package / "train.py")
    for folder in ("/", str(tmp_path), str(tmp_path / "code")):
        assert place_of(folder, ("python", script)) == str(project)
    assert place_of(str(tmp_path), ("python", "code/project/package/train.py")) == str(project)
    for folder in (str(project), str(package), str(project / "ci")):
        assert place_of(folder, ("python", script)) == folder, "within it"
    assert place_of("/", ("python", "-m", "package.train")) == "/", "no script"
    assert place_of("", ("python", script)) == ""


def test_without_a_project_files_are_told_from_where_it_was_started(tmp_path: Path) -> None:
    assert place_of(str(tmp_path), ("python", "scripts/train.py")) == str(tmp_path)


def test_without_a_folder_the_last_two_parts_are_left() -> None:
    assert shown("/srv/me/project/train.py", "") == "…/project/train.py"
    assert shown("/srv/data.py", "/a") == "…/srv/data.py", "nothing but the root is in common"


def test_the_folder_is_what_the_run_says() -> None:
    assert folder_of(RunBuilder(cwd="/said").build()) == "/said"
    assert folder_of(RunBuilder(host={"cwd": "/host"}).build()) == "/host"
    assert folder_of(RunBuilder().build()) == ""


def test_the_text_of_a_line_is_short_and_on_one_line(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("first\n\tloss   =  x.item()  # " + "x" * 100 + "\n")
    assert text_of(str(file), 2).startswith("loss = x.item() # xxx")
    assert len(text_of(str(file), 2)) == 80
    assert text_of(str(file), 99) == text_of(str(tmp_path / "gone.py"), 1) == ""
