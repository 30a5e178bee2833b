"""An environment of a revision's own: when there is one, whole or not at all, kept, and what it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from profiler.check.worktree import environments, prepared
from profiler.check.worktree.environments import Environment, cache_folder
from profiler.check.worktree.interpreter import Interpreter, asked
from profiler.core.errors import ProfilerError

BACKEND = """
import base64, hashlib, os, zipfile

def _wheel(folder, files):
    name = "mine-1-py3-none-any.whl"
    files |= {
        "mine-1.dist-info/METADATA": "Metadata-Version: 2.1\\nName: mine\\nVersion: 1\\n",
        "mine-1.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        "mine-1.dist-info/entry_points.txt": "[console_scripts]\\nmine-train = mine_code:main\\n",
    }
    with zipfile.ZipFile(os.path.join(folder, name), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr("mine-1.dist-info/RECORD", "".join(f"{path},,\\n" for path in files))
    return name

def build_wheel(folder, config_settings=None, metadata_directory=None):
    return _wheel(folder, {"mine_code.py": open("mine_code.py").read()})

def build_editable(folder, config_settings=None, metadata_directory=None):
    return _wheel(folder, {"mine.pth": os.getcwd() + "\\n"})
"""
PROJECT = (
    '[project]\nname = "mine"\nversion = "1"\ndependencies = ["tiny=={}"]\n'
    '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
)


def quiet(line: str) -> None:
    pass


@pytest.fixture
def index(tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels in the place of a server: tiny 1 and 2, with a script."""
    folder = tmp_path / "index"
    folder.mkdir()
    for version in "12":
        info = f"tiny-{version}.dist-info"
        files = {
            "tiny.py": f"VERSION = {version}\ndef main():\n    import mine_code\n    mine_code.main()\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/entry_points.txt": "[console_scripts]\ntiny-run = tiny:main\n",
        }
        with zipfile.ZipFile(folder / f"tiny-{version}-py3-none-any.whl", "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
            archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in files))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_COMPILE", "1")  # most of the time that a new environment takes
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def commit(root: Path, git: Any, **texts: str) -> None:
    for name, text in texts.items():
        (root / name.replace("__", ".")).write_text(text)
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "more")


def output(side: Any) -> str:
    environment = {**os.environ, **side.env}
    done = subprocess.run(side.argv, cwd=side.cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ---------------------------------------------------------------- with a real venv and pip


@pytest.mark.slow
def test_requirements_of_the_revision_are_installed_once(repository: Path, index: Path, git: Any) -> None:
    commit(repository, git, requirements__txt="tiny==1\n", train__py="import tiny\nprint(tiny.VERSION)\n")
    commit(repository, git, requirements__txt="tiny==2\n")
    said: list[str] = []
    words = (sys.executable, "train.py")
    with prepared("HEAD~1", words, cwd=repository, links=(), say=said.append) as side:
        assert output(side) == "1"
        assert side.argv[0].startswith(str(cache_folder()))
        assert "HEAD~1 requires something else (requirements.txt): an environment of its own (made now" in side.notes[0]
    assert len([line for line in said if line.startswith("makes an environment")]) == 1
    said.clear()
    (index / "tiny-1-py3-none-any.whl").unlink()
    with prepared("HEAD~1", ("python", "train.py"), cwd=repository, links=(), say=said.append) as side:
        assert output(side) == "1"
        assert "made by an earlier check" in side.notes[0]
    assert said == []
    with prepared("HEAD", words, cwd=repository, links=(), say=said.append) as side:
        assert (side.argv, side.notes) == (words, ())


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_project_is_installed_editable_for_each_check(
    repository: Path, index: Path, git: Any, tmp_path: Path, dynamic: bool
) -> None:
    """Its own scripts and those of what it requires find the revision's code, which the cache never holds."""
    backend = BACKEND.replace("Version: 1\\n", "Version: 1\\nRequires-Dist: tiny==1\\n") if dynamic else BACKEND
    old = PROJECT.format(1).replace(
        'dependencies = ["tiny==1"]', 'dynamic = ["dependencies"]' if dynamic else 'dependencies = ["tiny==1"]'
    )
    imports = "import tiny\nfrom importlib.metadata import version\n"
    code = imports + "def main():\n    print({}, tiny.VERSION, version('mine'))\n"
    commit(repository, git, pyproject__toml=old, backend__py=backend, mine_code__py=code.format("'a'"))
    commit(repository, git, mine_code__py=code.format("'b'"))
    commit(repository, git, pyproject__toml=PROJECT.format(2))
    both = "mine-train && python -c 'import tiny; tiny.main()'"
    for rev, words, expected in (
        ("HEAD~2", ("tiny-run",), "a 1 1"),
        ("HEAD~1", ("mine-train",), "b 1 1"),
        ("HEAD~1", ("sh", "-c", both), "b 1 1\nb 1 1"),
    ):
        with prepared(rev, words, cwd=repository, links=(), say=quiet) as side:
            assert output(side) == expected, f"{rev} {words}"
    assert len(list(cache_folder().glob("*/whole"))) == 1


@pytest.mark.slow
def test_a_failure_of_pip_is_one_line_and_leaves_nothing_half(repository: Path, index: Path, git: Any) -> None:
    commit(repository, git, requirements__txt="tiny==3\n")
    commit(repository, git, requirements__txt="tiny==2\n")
    with pytest.raises(ProfilerError, match="No matching distribution found for tiny==3") as caught:
        prepared("HEAD~1", ("python", "train.py"), cwd=repository, links=(), say=quiet).__enter__()
    assert "\n" not in str(caught.value)
    (log,) = cache_folder().glob("*.log")
    assert str(log) in str(caught.value)
    assert "tiny==3" in log.read_text()
    assert list(cache_folder().glob("*/whole")) == []


# ---------------------------------------------------------------- with a stand-in for pip


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What pip and venv were asked for; the environment is this Python under another name."""
    asked_for: list[str] = []

    def make(python: str, home: Path, log: Path) -> None:
        asked_for.append(f"make {home.name}")
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "python").symlink_to(python)

    def install(home: Path, plan: Any, log: Path) -> None:
        asked_for.append(f"install {' '.join(plan.lines)}")
        if "interrupted" in os.environ:
            raise KeyboardInterrupt

    monkeypatch.setattr(environments, "make", make)
    monkeypatch.setattr(environments, "install", install)
    return asked_for


@pytest.fixture
def changed(repository: Path, git: Any) -> Path:
    commit(repository, git, requirements__txt="a==1\n")
    commit(repository, git, requirements__txt="a==2\n")
    return repository


@pytest.mark.usefixtures("asked_once")
def test_one_that_was_interrupted_is_made_anew(
    changed: Path, stand_in: list[str], monkeypatch: pytest.MonkeyPatch, git: Any
) -> None:
    words = (sys.executable, "train.py")
    monkeypatch.setenv("interrupted", "1")
    with pytest.raises(KeyboardInterrupt), prepared("HEAD~1", words, cwd=changed, links=(), say=quiet):
        pass
    assert git(changed, "worktree", "list").count("\n") == 0
    monkeypatch.delenv("interrupted")
    for _ in range(2):
        with prepared("HEAD~1", words, cwd=changed, links=(), say=quiet) as side:
            assert Path(side.argv[0]).is_relative_to(cache_folder())
            assert output(side) == "2", "the program of HEAD~1, which is that of the second commit"
    assert [line.partition(" ")[0] for line in stand_in] == ["make", "install"] * 2, stand_in
    assert stand_in[1] == stand_in[3] == "install a==1"


@pytest.mark.usefixtures("asked_once")
def test_other_pins_other_environment(changed: Path, stand_in: list[str], git: Any) -> None:
    (changed / "requirements.txt").write_text("a==3\n")
    for rev in ("HEAD~1", "HEAD"):
        with prepared(rev, ("python", "train.py"), cwd=changed, links=(), say=quiet):
            pass
    assert len({line for line in stand_in if line.startswith("make")}) == 2


@pytest.mark.usefixtures("asked_once")
def test_the_same_environment_if_asked(changed: Path, stand_in: list[str]) -> None:
    words = (sys.executable, "train.py")
    with prepared("HEAD~1", words, cwd=changed, links=(), environment="same", say=quiet) as side:
        assert side.argv == words
        (note,) = side.notes
    assert note == "HEAD~1 requires something else (requirements.txt), and both sides ran in your environment, as asked"
    assert stand_in == []
    with pytest.raises(ProfilerError, match="auto, same"):
        prepared("HEAD", words, cwd=changed, links=(), environment="other", say=quiet).__enter__()


@pytest.mark.usefixtures("asked_once")
def test_where_no_environment_can_be_made(repository: Path, stand_in: list[str], git: Any) -> None:
    commit(repository, git, environment__yml="a")
    commit(repository, git, environment__yml="b")
    with pytest.raises(ProfilerError, match=r"not environment\.yml"):
        prepared("HEAD~1", ("python", "train.py"), cwd=repository, links=(), say=quiet).__enter__()
    with prepared("HEAD~2", ("python", "train.py"), cwd=repository, links=(), say=quiet) as side:
        assert "names nothing that pip could install" in side.notes[0]
    with prepared("HEAD~1", ("conda", "run", "x"), cwd=repository, links=(), say=quiet) as side:
        assert "is left to conda" in side.notes[0]
    assert stand_in == []


@pytest.mark.usefixtures("asked_once")
def test_ignored_files_require_nothing(repository: Path, stand_in: list[str], git: Any) -> None:
    commit(repository, git, __gitignore="uv.lock\n")
    (repository / "uv.lock").write_text("x")
    with prepared("HEAD", ("python", "train.py"), cwd=repository, links=(), say=quiet) as side:
        assert side.notes == ()


def test_words_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user, own = tmp_path / "user", tmp_path / "own"
    for folder, names in ((user, ("python", "torchrun", "only-mine")), (own, ("python", "torchrun"))):
        folder.mkdir()
        for name in names:
            (folder / name).write_text(f"#!{folder}/python\n")
            (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{user}:/usr/bin:/bin")
    mine = Interpreter(str(user / "python"), (), (), {}, {})
    theirs = Environment(str(own / "python"), (own,))
    assert theirs.command(("python3", "a.py"), mine) == (str(own / "python"), "a.py")
    assert theirs.command((str(user / "python"), "a.py"), mine) == (str(own / "python"), "a.py")
    for word in ("torchrun", str(user / "torchrun")):
        assert theirs.command((word, "a.py"), mine) == (str(own / "python"), str(own / "torchrun"), "a.py")
    assert theirs.command(("nice", str(user / "python"), "a"), mine) == ("nice", str(own / "python"), "a")
    assert theirs.command(("./run.sh", "a"), mine) == ("./run.sh", "a")
    with pytest.raises(ProfilerError, match="brings no only-mine"):
        theirs.command(("only-mine",), mine)
    assert theirs.variables()["PATH"].split(":")[0] == str(own)


def test_a_python_that_cannot_be_asked(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no module >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(ProfilerError, match="no module"):
        asked(str(broken), tmp_path)
    with pytest.raises(ProfilerError, match="cannot ask"):
        asked(str(tmp_path / "nowhere"), tmp_path)
