"""Files of sites as every machine has them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profiler.check.counters.files import (
    COMPILED_FILE,
    portable_command,
    portable_path,
    portable_program,
    root_folder,
    start_folder,
)
from profiler.run.code_origin import working_folder
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
        ("/tmp/torchinductor_me/ab/cabcd.py", COMPILED_FILE),
        ("train.py", "train.py"),
        ("<string>", "<string>"),
        ("", ""),
        ("/srv/me/project/\udcff.py", "?.py"),
    ],
)
def test_a_path_names_nothing_of_the_machine(file: str, expected: str) -> None:
    assert portable_path(file, "/srv/me/project") == expected


def test_of_a_path_elsewhere_the_last_two_parts_are_left() -> None:
    assert portable_path("/srv/me/project/train.py", "") == "…/project/train.py"
    assert portable_path("/srv/data.py", "/a") == "…/srv/data.py", "nothing but the root is in common"


def test_a_file_behind_a_symbolic_link_is_the_one_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").touch()
    (tmp_path / "link").symlink_to(tmp_path / "project")
    assert portable_path(f"{tmp_path}/link/train.py", str(tmp_path / "project")) == "train.py"


@pytest.mark.parametrize(("mark", "outer"), [(".git", "pyproject.toml"), ("pyproject.toml", "")])
def test_paths_are_relative_to_the_project_of_the_script(tmp_path: Path, mark: str, outer: str) -> None:
    project, package = tmp_path / "code" / "project", tmp_path / "code" / "project" / "package"
    package.mkdir(parents=True)
    (project / mark).touch()
    if outer:
        (package / outer).touch()
    script = str(package / "train.py")
    for folder in ("/", str(tmp_path), str(tmp_path / "code")):
        assert root_folder(folder, ("python", script)) == str(project)
    assert root_folder(str(tmp_path), ("python", "code/project/package/train.py")) == str(project)
    for folder in (str(project), str(package), str(project / "ci")):
        assert root_folder(folder, ("python", script)) == folder, "within it"
    assert root_folder("/", ("python", "-m", "package.train")) == "/", "no script"
    assert root_folder("", ("python", script)) == ""
    assert root_folder(str(tmp_path), ("python", "scripts/train.py")) == str(tmp_path), "no project"


def test_the_working_folder_is_what_the_run_reports() -> None:
    assert working_folder(RunBuilder(cwd="/here").build()) == "/here"
    assert working_folder(RunBuilder(host={"cwd": "/host"}).build()) == "/host"
    assert working_folder(RunBuilder().build()) == ""


@pytest.mark.parametrize(
    ("command", "file", "folder"),
    [
        ("python train.py", "/srv/me/proj/train.py", "/srv/me/proj"),
        ("python ./scripts/train.py", "/srv/me/proj/scripts/train.py", "/srv/me/proj"),
        ("python -m pkg.train --x y.py", "/srv/me/proj/pkg/train.py", "/srv/me/proj"),
        ("python -m pkg", "/srv/me/proj/pkg/__main__.py", "/srv/me/proj"),
        ("python train.py", "/srv/me/proj/other.py", ""),
        ("python /srv/me/proj/train.py", "/srv/me/proj/other.py", "/srv/me/proj"),
    ],
)
def test_the_start_folder_is_derived_from_the_recorded_call_sites(command: str, file: str, folder: str) -> None:
    info = SimpleNamespace(argv=tuple(command.split()), facts={}, host={})
    run: Any = SimpleNamespace(info=info, sites=(SimpleNamespace(file=file),))
    assert start_folder(run) == folder


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py", ("train.py", "")),
        ("/opt/bin/python -u /srv/me/src/train.py --lr 0.1", ("src/train.py", "--lr 0.1")),
        ("python train.py --lr=0.1 --data=/srv/me/data", ("train.py", "--lr 0.1 --data data")),
        ("python -m mine.train --data /mnt/big/corpus", ("mine.train", "--data '…/big/corpus'")),
        ("torchrun --nproc-per-node 2 train.py --out_dir out --epochs 1", ("train.py", "--epochs 1")),
        ("python train.py --run-name a --output-dir=b --save --epochs 1", ("train.py", "--save --epochs 1")),
        ("python -c pass", ("", "")),
    ],
)
def test_the_program_and_the_arguments_that_matter(command: str, expected: tuple[str, str]) -> None:
    assert portable_program(command.split(), "/srv/me") == expected


def test_a_command_names_no_folder_of_this_machine() -> None:
    assert portable_command("/ci/bin/python train.py --data /ci/work/data", "/ci/work") == "python train.py --data data"
    assert portable_command("python 'train.py", "/ci") == "python 'train.py", "not shell syntax: as it is"
