"""Which requirements of two trees differ, and what pip is to install for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.check.worktree.requirements import (
    Requirements,
    can_install,
    changed_files,
    find_requirements,
    requirement_files,
)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def required(root: Path, *, project_installed: bool = False) -> Requirements:
    requirements = find_requirements(root, root, project_installed=project_installed)
    assert requirements is not None
    return requirements


@pytest.mark.parametrize(
    ("name", "here", "there", "differs"),
    [
        ("requirements.txt", "a\n", "# why\n\na   # because\n", False),
        ("requirements.txt", "a==1", "a==2", True),
        ("requirements.txt", "-r requirements/base.txt", None, True),
        ("pyproject.toml", "[tool.ruff]\nx = 1", "[tool.ruff]\nx = 2", False),
        ("pyproject.toml", "[tool.ruff]\nx = 1", None, False),
        ("pyproject.toml", "[project]\nversion = '1'", "[project]\nversion = '2'", False),
        ("pyproject.toml", "[project]\ndependencies = ['a']", "[project]\ndependencies = ['b']", True),
        ("pyproject.toml", "[build-system]\nrequires = ['a']", "[build-system]\nrequires = ['b']", True),
        ("pyproject.toml", "[tool.poetry.dependencies]\na = '1'", "[tool.poetry.dependencies]\na = '2'", True),
        ("pyproject.toml", "not toml [", "nor this [", True),
        ("setup.cfg", "[flake8]\na = 1", "[flake8]\na = 2", False),
        ("setup.cfg", "[options]\ninstall_requires = a", "[options]\ninstall_requires = b", True),
        ("setup.cfg", "[options]\npython_requires = >=3.11", "[options]\nzip_safe = false", True),
        ("setup.cfg", "[options.extras_require]\ndev = a", "[options.extras_require]\ndev = b", True),
        ("uv.lock", "1", "2", True),
        ("environment.yml", "1", "2", True),
        ("train.py", "1", "2", False),
    ],
)
def test_which_files_differ(tmp_path: Path, name: str, here: str, there: str | None, differs: bool) -> None:
    root = write(tmp_path / "root", {name: here})
    tree = write(tmp_path / "tree", {} if there is None else {name: there})
    assert changed_files(root, tree, root) == ((name,) if differs else ())
    assert changed_files(root, root, root) == ()


def test_only_folders_from_the_working_folder_upward_count(tmp_path: Path) -> None:
    names = ("part/requirements.txt", "other/requirements.txt", "requirements.txt")
    root = write(tmp_path / "root", dict(zip(names, ("a", "x", "r"), strict=True)))
    tree = write(tmp_path / "tree", dict(zip(names, ("b", "y", "r"), strict=True)))
    assert changed_files(root, tree, root / "part") == ("part/requirements.txt",)
    assert changed_files(root, tree, root) == ()
    (tree / "part" / "deep").mkdir()
    requirements = find_requirements(tree, tree / "part" / "deep", project_installed=False)
    assert requirements is not None
    assert requirements.files == (tree / "part" / "requirements.txt",)


def test_included_files_count(tmp_path: Path) -> None:
    deps = {"deps/base.in": "a\n", "deps/pins.txt": "-r ../requirements.txt\n"}
    root = write(tmp_path, {"requirements.txt": "-r deps/base.in\n--constraint=deps/pins.txt", **deps})
    assert {file.name for file in requirement_files(root)} == {"requirements.txt", "base.in", "pins.txt"}
    key = required(root).key()
    (root / "deps" / "base.in").write_text("b\n")
    assert required(root).key() != key


def test_which_requirements_files_are_used(tmp_path: Path) -> None:
    root = write(tmp_path, {"requirements-b.txt": "b", "requirements-a.txt": "a"})
    assert [file.name for file in required(root).files] == ["requirements-a.txt", "requirements-b.txt"]
    for name in ("requirements.lock", "requirements.txt"):
        (root / name).write_text("r==1")
        assert required(root).files == (root / name,)
    assert find_requirements(tmp_path / "empty", tmp_path / "empty", project_installed=False) is None


def test_a_project_is_installed_if_needed(tmp_path: Path) -> None:
    text = "[project]\nname='p'\ndependencies=['a>1']\noptional-dependencies={dev=['b'],other=['c']}\n"
    root = write(tmp_path, {"pyproject.toml": text})
    assert required(root).projects == (root,)
    write(root, {"requirements.txt": "r"})
    assert required(root).projects == ()
    installed = required(root, project_installed=True)
    assert (installed.files, installed.projects) == ((root / "requirements.txt",), (root,))


def test_local_folders_are_projects_and_files_are_not(tmp_path: Path) -> None:
    root = write(tmp_path, {"lib/pyproject.toml": "[project]\nname='l'\ndependencies=['z']", "other/setup.py": ""})
    write(root, {"requirements.txt": "./lib\n-e ./other[dev]\n./w.whl\nx @ file://./nowhere\n-e .[dev]\n"})
    assert required(root).projects == (root / "lib", root / "other", root)
    key = required(root).key()
    write(root, {"lib/pyproject.toml": "[project]\nname='l'\ndependencies=['y']"})
    assert required(root).key() != key, "what local projects require belongs to the environment"


@pytest.mark.parametrize("text", ["[project]\nname='p'", "[tool.poetry]\nname='p'\n"])
def test_what_builds_a_project_belongs_to_the_environment(tmp_path: Path, text: str) -> None:
    root = write(tmp_path, {"pyproject.toml": text})
    assert required(root).projects == (root,)
    key = required(root).key()
    write(root, {"pyproject.toml": text + "\n[build-system]\nrequires=['x']"})
    assert required(root).key() != key


def test_which_changes_can_be_installed() -> None:
    assert can_install(["poetry.lock", "sub/requirements.txt"], with_uv=False)
    for name in ("poetry.lock", "pdm.lock", "Pipfile.lock", "environment.yml"):
        assert not can_install([name], with_uv=True)
    assert can_install(["uv.lock"], with_uv=True)
    assert not can_install(["uv.lock"], with_uv=False)


def test_a_lock_of_uv_belongs_to_the_environment(tmp_path: Path) -> None:
    root = write(tmp_path, {"pyproject.toml": "[project]\nname='p'\n", "requirements.txt": "a", "uv.lock": "1"})
    found = required(root)
    assert (found.is_locked, found.projects) == (True, (root,)), "uv installs the project"
    key = found.key()
    write(root, {"uv.lock": "2"})
    assert required(root).key() != key


def test_constraints_that_a_file_names_belong_to_the_environment(tmp_path: Path) -> None:
    root = write(tmp_path, {"requirements.txt": "-c constraints.txt\na\n", "constraints.txt": "a==1"})
    assert required(root).arguments() == ["-r", f"{root}/requirements.txt"]
    key = required(root).key()
    write(root, {"constraints.txt": "a==2"})
    assert required(root).key() != key
