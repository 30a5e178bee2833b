"""A side imports its own code: PYTHONPATH, editable installs, spellings of the repository, and what strayed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profiler.check.worktree import prepared, strayed, working
from profiler.check.worktree.interpreter import asked, interpreter_of
from profiler.check.worktree.paths import Mapping, in_environment


@pytest.fixture
def places(tmp_path: Path) -> Mapping:
    (tmp_path / "repo").mkdir()
    (tmp_path / "tree").mkdir()
    (tmp_path / "spelled").symlink_to("repo")
    return Mapping.between(tmp_path / "repo", tmp_path / "tree", tmp_path / "spelled")


def test_words(places: Mapping, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    assert places.word(f"{tmp_path}/repo/a.py") == f"{tree}/a.py"
    assert places.word(f"{tmp_path}/spelled/a.py") == f"{tree}/a.py", "a link to the repository is the repository"
    assert places.word(f"--data={tmp_path}/repo/x/../d") == f"--data={tree}/d"
    assert places.word(f"data={tmp_path}/repo/d") == f"data={tmp_path}/repo/d", "a word of the program's own"
    for same in ("a.py", "-x", "--data=d", f"{tmp_path}/repository", "/", "", f"{tmp_path}/repo/../other"):
        assert places.word(same) == same


def test_an_environment_in_the_repository_stays(places: Mapping, tmp_path: Path) -> None:
    scripts = tmp_path / "repo" / ".venv" / "bin"
    scripts.mkdir(parents=True)
    (scripts.parent / "pyvenv.cfg").write_text("")
    (scripts / "python").write_text("")
    assert places.word(str(scripts / "torchrun")) == str(scripts / "torchrun")
    assert places.program(".venv/bin/python", tmp_path / "repo", "HEAD") == str(scripts / "python")
    assert in_environment(scripts / "python")
    assert not in_environment(tmp_path / "repo" / "a.py")


def test_search_path(places: Mapping, tmp_path: Path) -> None:
    repo, tree = tmp_path / "repo", tmp_path / "tree"
    before = os.pathsep.join(["lib", str(repo / "a"), "/opt/b"])
    found = [str(repo / "src"), str(repo / "a"), "/usr/lib/python3", str(tmp_path / "spelled" / "c")]
    expected = ["lib", f"{tree}/a", "/opt/b", f"{tree}/src", f"{tree}/c"]
    assert places.search_path(before, found).split(os.pathsep) == expected
    assert places.search_path("", []) == ""


def test_a_src_of_packages_is_in_front(places: Mapping, tmp_path: Path) -> None:
    (tmp_path / "tree" / "src" / "package").mkdir(parents=True)
    assert places.search_path("", []) == "", "no package in it: modules are imported from above"
    (tmp_path / "tree" / "src" / "package" / "__init__.py").write_text("")
    assert places.search_path("/a", []) == f"/a{os.pathsep}{tmp_path}/tree/src"


def test_an_editable_install_is_not_imported_by_the_revision(
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
    words = (sys.executable, "train.py")
    for side in (working(words, repository),):
        assert subprocess.check_output(side.argv, cwd=side.cwd, text=True).startswith("new new")
    with prepared("HEAD", words, cwd=repository, links=(), say=print) as side:
        said = subprocess.check_output(side.argv, cwd=side.cwd, env={**os.environ, **side.env}, text=True)
        assert said.startswith("old old"), said
        assert strayed([said.split()[-1]], repository) == ()
    assert str(site) in side.env["PYTHONPATH"].split(os.pathsep), "what is outside the repository stays"


def test_strayed(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    (root / ".venv" / "lib").mkdir(parents=True)
    (root / ".venv" / "pyvenv.cfg").write_text("")
    (root / "a.py").write_text("")
    (tmp_path / "link").symlink_to(root)
    inside = str(root / "a.py")
    files = [
        str(tmp_path / "link" / "a.py"),
        inside,
        str(root / ".venv" / "lib" / "m.py"),
        "/usr/lib/os.py",
        sys.executable,
    ]
    assert strayed(files, root) == (inside,)
    assert strayed(files, tmp_path / "link") == (inside,)
    tree = tmp_path / "profiler-check-1" / "repo"
    tree.mkdir(parents=True)
    (tree / "made").symlink_to(root)
    assert strayed([str(tree / "made" / "a.py")], root) == (), "it was asked for by --link"


def test_which_python_a_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = tmp_path / "bin"
    scripts.mkdir()
    for name, text in (("python", "#!/bin/sh\n"), ("tool", f"#!{scripts}/python\n"), ("run.sh", "#!/bin/sh\n")):
        (scripts / name).write_text(text)
        (scripts / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(scripts))
    expected = str(scripts / "python")
    assert interpreter_of(["python", "a.py"], tmp_path) == expected
    assert interpreter_of(["bin/python", "a.py"], tmp_path) == expected
    assert interpreter_of(["tool"], tmp_path) == expected
    assert interpreter_of([str(scripts / "run.sh")], tmp_path) == expected
    assert interpreter_of(["env", "A=1", "python", "a.py"], tmp_path) == expected
    assert interpreter_of(["run.sh", sys.executable, "a.py"], tmp_path) == sys.executable


def test_a_python_says_what_it_has(tmp_path: Path) -> None:
    said = asked(sys.executable, tmp_path)
    assert said.executable == sys.executable
    assert said.packages["pytest"] == pytest.__version__
    assert said.version[1] == ".".join(map(str, sys.version_info[:3]))
