"""A side imports its own code: PYTHONPATH, editable installs, spellings of the repository, and what strayed."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from profiler.check.worktree.environment import find_interpreter, inspect_interpreter
from profiler.check.worktree.prepare import PathMapping, in_environment, refuse_working_tree, working_tree_side
from profiler.core.errors import ProfilerError
from tests.check.worktree.conftest import COMMAND, at_revision, output


@pytest.fixture
def mapping(tmp_path: Path) -> PathMapping:
    (tmp_path / "repo").mkdir()
    (tmp_path / "tree").mkdir()
    (tmp_path / "spelled").symlink_to("repo")
    return PathMapping(tmp_path / "repo", tmp_path / "tree")


def test_arguments(mapping: PathMapping, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    assert mapping.map_argument(f"{tmp_path}/repo/a.py") == f"{tree}/a.py"
    assert mapping.map_argument(f"{tmp_path}/spelled/a.py") == f"{tree}/a.py", (
        "a link to the repository is the repository"
    )
    assert mapping.map_argument(f"--data={tmp_path}/repo/x/../d") == f"--data={tree}/d"
    assert mapping.map_argument(f"data={tmp_path}/repo/d") == f"data={tmp_path}/repo/d", "not a path for us"
    for same in ("a.py", "-x", "--data=d", f"{tmp_path}/repository", "/", "", f"{tmp_path}/repo/../other"):
        assert mapping.map_argument(same) == same


def test_an_environment_in_the_repository_is_not_mapped(mapping: PathMapping, tmp_path: Path) -> None:
    scripts = tmp_path / "repo" / ".venv" / "bin"
    scripts.mkdir(parents=True)
    (scripts.parent / "pyvenv.cfg").write_text("")
    (scripts / "python").write_text("")
    assert mapping.map_argument(str(scripts / "torchrun")) == str(scripts / "torchrun")
    assert mapping.map_program(".venv/bin/python", tmp_path / "repo", "HEAD") == str(scripts / "python")
    assert in_environment(scripts / "python")
    assert not in_environment(tmp_path / "repo" / "a.py")


def test_python_path(mapping: PathMapping, tmp_path: Path) -> None:
    repo, tree = tmp_path / "repo", tmp_path / "tree"
    before = os.pathsep.join(["lib", str(repo / "a"), "/opt/b"])
    found = [str(repo / "src"), str(repo / "a"), "/usr/lib/python3", str(tmp_path / "spelled" / "c")]
    expected = ["lib", f"{tree}/a", "/opt/b", f"{tree}/src", f"{tree}/c"]
    assert mapping.python_path(before, found).split(os.pathsep) == expected
    assert mapping.python_path("", []) == ""


def test_a_src_folder_of_packages_is_added(mapping: PathMapping, tmp_path: Path) -> None:
    (tmp_path / "tree" / "src" / "package").mkdir(parents=True)
    assert mapping.python_path("", []) == "", "no package in it: modules are imported from above"
    (tmp_path / "tree" / "src" / "package" / "__init__.py").write_text("")
    assert mapping.python_path("/a", []) == f"/a{os.pathsep}{tmp_path}/tree/src"


def test_an_editable_install_is_not_used(
    repository: Path, tmp_path: Path, git: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two ways in which tools install so: a folder on sys.path, and a finder with a table of packages."""
    for package in ("alpha", "beta"):
        (repository / "src" / package).mkdir(parents=True)
        (repository / "src" / package / "__init__.py").write_text("VALUE = 'old'\n")
    (repository / "train.py").write_text("import alpha, beta\nprint(alpha.VALUE, beta.VALUE, alpha.__file__)\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "packages")
    for package in ("alpha", "beta"):
        (repository / "src" / package / "__init__.py").write_text("VALUE = 'new'\n")
    site = tmp_path / "site"
    site.mkdir()
    (site / "finder.py").write_text(
        f"import sys, importlib.util\nMAPPING = {{'beta': {str(repository / 'src' / 'beta')!r}}}\n"
        "class Finder:\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        "        if name in MAPPING:\n"
        "            return importlib.util.spec_from_file_location(name, MAPPING[name] + '/__init__.py')\n"
        "sys.meta_path.append(Finder)\n"
    )
    (site / "sitecustomize.py").write_text(f"import sys, finder\nsys.path.append({str(repository / 'src')!r})\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    assert output(working_tree_side(COMMAND, repository)).startswith("new new")
    with at_revision("HEAD", repository) as side:
        printed = output(side)
        assert printed.startswith("old old"), printed
        refuse_working_tree([printed.split()[-1]], repository)
    assert str(site) in side.env["PYTHONPATH"].split(os.pathsep), "what is outside the repository stays"


def test_modules_of_the_working_tree_are_found(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    (root / ".venv" / "lib").mkdir(parents=True)
    (root / ".venv" / "pyvenv.cfg").write_text("")
    (root / "a.py").write_text("")
    (tmp_path / "link").symlink_to(root)
    inside = str(root / "a.py")
    outside = [str(root / ".venv" / "lib" / "m.py"), "/usr/lib/os.py", sys.executable]
    files = [str(tmp_path / "link" / "a.py"), inside, *outside]
    for repository in (root, tmp_path / "link"):
        with pytest.raises(ProfilerError, match=re.escape(f"runs code of the working tree ({inside})")):
            refuse_working_tree(files, repository)
    tree = tmp_path / "profiler-check-1" / "repo"
    tree.mkdir(parents=True)
    (tree / "made").symlink_to(root)
    refuse_working_tree([str(tree / "made" / "a.py")], root)  # it was asked for by --link


def test_which_python_a_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = tmp_path / "bin"
    scripts.mkdir()
    for name, text in (("python", "#!/bin/sh\n"), ("tool", f"#!{scripts}/python\n"), ("run.sh", "#!/bin/sh\n")):
        (scripts / name).write_text(text)
        (scripts / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(scripts))
    script = str(scripts / "run.sh")
    for words in (["python", "a.py"], ["bin/python", "a.py"], ["tool"], [script], ["env", "A=1", "python", "a.py"]):
        assert find_interpreter(words, tmp_path) == str(scripts / "python"), words
    assert find_interpreter(["run.sh", sys.executable, "a.py"], tmp_path) == sys.executable


def test_an_interpreter_lists_its_packages(tmp_path: Path) -> None:
    interpreter = inspect_interpreter(sys.executable, tmp_path)
    assert interpreter.executable == sys.executable
    assert interpreter.packages["pytest"] == pytest.__version__
    assert interpreter.version[1] == ".".join(map(str, sys.version_info[:3]))
