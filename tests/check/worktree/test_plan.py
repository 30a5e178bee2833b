"""What differs between two trees' requirements, and what pip is to install for one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler.check.worktree.dependencies import differing, files
from profiler.check.worktree.plan import Plan, plan


def lay(folder: Path, **texts: str) -> Path:
    """Files of a folder; `__` in a name is a stroke, `_txt` its ending."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        file = folder / name.replace("__", "/").replace("_txt", ".txt").replace("_toml", ".toml").replace(
            "_lock", ".lock"
        )
        file = file.with_name(file.name.replace("_cfg", ".cfg").replace("_py", ".py").replace("_yml", ".yml"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        ({"requirements_txt": "a\n"}, {"requirements_txt": "# why\n\na   # because\n"}, ()),
        ({"requirements_txt": "a==1"}, {"requirements_txt": "a==2"}, ("requirements.txt",)),
        ({"requirements_txt": "-r requirements/base.txt"}, {}, ("requirements.txt",)),
        ({"pyproject_toml": "[tool.ruff]\nx = 1"}, {"pyproject_toml": "[tool.ruff]\nx = 2"}, ()),
        ({"pyproject_toml": "[tool.ruff]\nx = 1"}, {}, ()),
        ({"pyproject_toml": "[project]\nversion = '1'"}, {"pyproject_toml": "[project]\nversion = '2'"}, ()),
        (
            {"pyproject_toml": "[project]\ndependencies = ['a']"},
            {"pyproject_toml": "[project]\ndependencies = ['b']"},
            ("pyproject.toml",),
        ),
        (
            {"pyproject_toml": "[build-system]\nrequires = ['a']"},
            {"pyproject_toml": "[build-system]\nrequires = ['b']"},
            ("pyproject.toml",),
        ),
        (
            {"pyproject_toml": "[tool.poetry.dependencies]\na = '1'"},
            {"pyproject_toml": "[tool.poetry.dependencies]\na = '2'"},
            ("pyproject.toml",),
        ),
        ({"pyproject_toml": "not toml ["}, {"pyproject_toml": "nor this ["}, ("pyproject.toml",)),
        ({"setup_cfg": "[flake8]\na = 1"}, {"setup_cfg": "[flake8]\na = 2"}, ()),
        (
            {"setup_cfg": "[options]\ninstall_requires = a"},
            {"setup_cfg": "[options]\ninstall_requires = b"},
            ("setup.cfg",),
        ),
        ({"uv_lock": "1"}, {"uv_lock": "2"}, ("uv.lock",)),
        ({"environment_yml": "1"}, {"environment_yml": "2"}, ("environment.yml",)),
        ({"train_py": "1"}, {"train_py": "2"}, ()),
    ],
)
def test_what_differs(tmp_path: Path, here: dict[str, str], there: dict[str, str], expected: tuple[str, ...]) -> None:
    one, other = lay(tmp_path / "one", **here), lay(tmp_path / "other", **there)
    assert differing(one, other, one) == expected
    assert differing(one, one, one) == ()


def test_a_project_in_a_folder_of_a_larger_repository(tmp_path: Path) -> None:
    one = lay(tmp_path / "one", part__requirements_txt="a", other__requirements_txt="x", requirements_txt="r")
    other = lay(tmp_path / "other", part__requirements_txt="b", other__requirements_txt="y", requirements_txt="r")
    assert differing(one, other, one / "part") == ("part/requirements.txt",)
    assert differing(one, other, one) == ()
    lay(other / "part" / "deep")
    chosen = plan(other, other / "part" / "deep", installed=False)
    assert chosen is not None
    assert (chosen.folder, chosen.lines) == (other / "part", ("b",))


def test_included_files_count(tmp_path: Path) -> None:
    root = lay(tmp_path, requirements_txt="-r deps/base.in\n--constraint=deps/pins.txt", deps__x_txt="")
    (root / "deps" / "base.in").write_text("a\n")
    (root / "deps" / "pins.txt").write_text("-r ../requirements.txt\n")
    assert {file.name for file in files(root)} == {"requirements.txt", "base.in", "pins.txt"}


def of(root: Path, *, installed: bool = False) -> Plan:
    found = plan(root, root, installed=installed)
    assert found is not None
    return found


def test_requirements_are_expanded(tmp_path: Path) -> None:
    root = lay(
        tmp_path,
        requirements_txt="-r sub/base.txt\n-c pins.txt\na \\\n  --hash=sha256:1\n--find-links wheels # ours\n",
        sub__base_txt="b>1  # comment\n-r more.txt",
        sub__more_txt="c\n-r base.txt",
        pins_txt="d==1",
        constraints_txt="e==1",
    )
    assert of(root).lines == ("b>1", "c", "a    --hash=sha256:1", "--find-links wheels")
    assert of(root).constraints == ("d==1", "e==1")
    assert of(root).projects == ()


def test_which_requirements(tmp_path: Path) -> None:
    root = lay(tmp_path, requirements_dev_txt="a")
    (root / "requirements-b.txt").write_text("b")
    (root / "requirements-a.txt").write_text("a")
    assert of(root).lines == ("a", "b")
    (root / "requirements.lock").write_text("l==1")
    assert of(root).lines == ("l==1",)
    (root / "requirements.txt").write_text("r")
    assert of(root).lines == ("r",)
    assert plan(lay(tmp_path / "empty"), tmp_path / "empty", installed=False) is None


def test_a_project(tmp_path: Path) -> None:
    text = "[project]\nname='p'\ndependencies=['a>1']\noptional-dependencies={dev=['b'],other=['c']}\n"
    root = lay(tmp_path, pyproject_toml=text)
    assert (of(root).lines, of(root).projects, of(root).untold) == (("a>1",), (root,), ())
    assert "extras" in of(root).notes[0]
    lay(root, requirements_txt="r")
    assert (of(root).lines, of(root).projects) == (("r",), ())
    assert (of(root, installed=True).lines, of(root, installed=True).projects) == (("r", "a>1"), (root,))
    lay(root, requirements_txt="r\n-e .[dev]\n")
    assert (of(root).lines, of(root).projects) == (("r", "a>1", "b"), (root,))


def test_local_folders_are_projects_and_files_are_not(tmp_path: Path) -> None:
    root = lay(tmp_path, lib__pyproject_toml="[project]\nname='l'\ndependencies=['z']", other__setup_py="")
    (root / "requirements.txt").write_text("./lib\n-e ./other\n./w.whl\nx @ file://./nowhere\n")
    found = of(root)
    assert found.projects == (root / "lib", root / "other")
    assert found.untold == (root / "other",)
    assert found.lines == ("./w.whl", "x @ file://./nowhere", "z")


@pytest.mark.parametrize(
    "text",
    ["[project]\nname='p'\ndynamic=['dependencies']", "[tool.poetry]\nname='p'\n[tool.poetry.dependencies]\na='1'"],
)
def test_what_only_a_build_tells(tmp_path: Path, text: str) -> None:
    root = lay(tmp_path, pyproject_toml=text)
    assert (of(root).projects, of(root).untold) == ((root,), (root,))
    before = of(root).key()
    lay(root, pyproject_toml=text + "\n[build-system]\nrequires=['x']")
    assert of(root).key() != before


def test_locks_pin(tmp_path: Path) -> None:
    package = "[[package]]\nname='{}'\nversion='{}'\nsource={{{}}}\n"
    lock = "".join(
        package.format(*one)
        for one in [
            ("a", "1", "registry='x'"),
            ("p", "1", "editable='.'"),
            ("g", "1", "git='x'"),
            ("n", "1", "registry='x'"),
            ("n", "2", "registry='x'"),
        ]
    )
    root = lay(tmp_path, pyproject_toml="[project]\nname='p'\ndependencies=['a']", uv_lock=lock)
    assert of(root).constraints == ("a==1",)
    before = of(root).key()
    lay(root, uv_lock=lock.replace("'1'", "'3'"))
    assert of(root).key() != before
    (root / "uv.lock").unlink()
    (root / "Pipfile.lock").write_text(json.dumps({"default": {"b": {"version": "==2"}, "c": {"path": "."}}}))
    assert of(root).constraints == ("b==2",)
