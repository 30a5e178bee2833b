"""A revision's own environment: when there is one, complete or not at all, cached, and what commands it runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from profiler.check.worktree import environment
from profiler.check.worktree.environment import (
    COMPLETE,
    Environment,
    Interpreter,
    cache_folder,
    inspect_interpreter,
    run_logged,
)
from profiler.core.errors import ProfilerError
from profiler.core.procfs import is_alive
from tests.check.speed.programs import until
from tests.check.worktree.conftest import COMMAND, assert_refused, at_revision, output

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


@pytest.fixture
def index(tmp_path: Path, clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> Path:
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


# ---------------------------------------------------------------- with a real venv and pip, or uv


@pytest.fixture(params=["pip", "uv"])
def tool(request: pytest.FixtureRequest, index: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The program that installs; pip has settings that uv does not read."""
    if request.param == "uv":
        if shutil.which("uv") is None:
            pytest.skip("no uv here")
        use_uv(monkeypatch)
        monkeypatch.setenv("UV_NO_INDEX", "1")
        monkeypatch.setenv("UV_FIND_LINKS", str(index))
        monkeypatch.setenv("UV_SYSTEM_PYTHON", "1")  # as in jobs of continuous integration
    return str(request.param)


def use_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of pip keep uv from being used."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(environment, "_PIP_FILES", ())


@pytest.mark.slow
def test_requirements_of_the_revision_are_installed_once(tool: str, repository: Path, index: Path, git: Any) -> None:
    commit(repository, git, requirements__txt="tiny==1\n", train__py="import tiny\nprint(tiny.VERSION)\n")
    commit(repository, git, requirements__txt="tiny==2\n")
    messages: list[str] = []
    with at_revision("HEAD~1", repository, announce=messages.append) as side:
        assert output(side) == "1"
        assert side.argv[0].startswith(str(cache_folder()))
        assert side.notes[0].code == "requirements-differ"
        assert (side.notes[0].values["files"], side.notes[0].values["environment"]) == (("requirements.txt",), "new")
    assert len(messages) == 1
    (index / "tiny-1-py3-none-any.whl").unlink()
    with at_revision("HEAD~1", repository, ("python", "train.py"), announce=messages.append) as side:
        assert output(side) == "1"
        assert side.notes[0].values["environment"] == "cached"
    assert len(messages) == 1
    with at_revision("HEAD", repository) as side:
        assert (side.argv, side.notes) == (COMMAND, ())


@pytest.mark.slow
@pytest.mark.parametrize("file", ["pyproject.toml", "requirements.txt"])
def test_a_project_is_installed_editable_for_each_check(
    tool: str, repository: Path, index: Path, git: Any, file: str
) -> None:
    """Its scripts and those of its requirements find the revision's code."""
    backend = BACKEND.replace("Version: 1\\n", "Version: 1\\nRequires-Dist: tiny==1\\n")
    if file == "requirements.txt":
        (repository / file).write_text("-e .\n")
    imports = "import tiny\nfrom importlib.metadata import version\n"
    code = imports + "def main():\n    print({}, tiny.VERSION, version('mine'))\n"
    commit(repository, git, pyproject__toml=PROJECT.format(1), backend__py=backend, mine_code__py=code.format("'a'"))
    commit(repository, git, mine_code__py=code.format("'b'"))
    commit(repository, git, pyproject__toml=PROJECT.format(2))
    both = "mine-train && python -c 'import tiny; tiny.main()'"
    for rev, words, expected in (
        ("HEAD~2", ("tiny-run",), "a 1 1"),
        ("HEAD~1", ("mine-train",), "b 1 1"),
        ("HEAD~1", ("sh", "-c", both), "b 1 1\nb 1 1"),
    ):
        with at_revision(rev, repository, words) as side:
            assert output(side) == expected, f"{rev} {words}"
    assert len(list(cache_folder().glob(f"*/{COMPLETE}"))) == 1


@pytest.mark.slow
def test_a_lock_of_uv_is_installed(
    repository: Path, index: Path, git: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if (uv := shutil.which("uv")) is None:
        pytest.skip("no uv here")
    use_uv(monkeypatch)
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(index))
    text = '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["tiny<={}"]\n'
    program = "import tiny\nprint(tiny.VERSION)\n"
    for most in (1, 2):
        (repository / "pyproject.toml").write_text(text.format(most))
        subprocess.run([uv, "lock", "--quiet"], cwd=repository, check=True)
        commit(repository, git, train__py=program)
    for expected in ("new", "cached"):
        with at_revision("HEAD~1", repository) as side:
            assert output(side) == "1"
            assert side.notes[0].values["environment"] == expected


@pytest.mark.slow
def test_a_failure_is_one_line_and_leaves_no_environment(tool: str, repository: Path, index: Path, git: Any) -> None:
    commit(repository, git, requirements__txt="tiny==3\n")
    commit(repository, git, requirements__txt="tiny==2\n")
    error = assert_refused(
        "cannot install what the revision requires: (No matching distribution found for|No solution found.*) tiny==3",
        "HEAD~1",
        repository,
    )
    (log,) = cache_folder().glob("*.log")
    assert str(log) in error
    assert "tiny==3" in log.read_text()
    assert list(cache_folder().glob(f"*/{COMPLETE}")) == []


# ---------------------------------------------------------------- without pip


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls of uv, pip and venv, which do nothing; an environment is this Python under another name."""
    calls: list[str] = []

    def run(command: list[str], *_: Any, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        calls.append(" ".join(command))
        if "venv" in command or variables:
            home = Path(variables.get("UV_PROJECT_ENVIRONMENT", command[-1]))
            (home / "bin").mkdir(parents=True, exist_ok=True)
            if not (home / "bin" / "python").exists():
                (home / "bin" / "python").symlink_to(sys.executable)
        if "install" in command and "interrupted" in os.environ:
            raise KeyboardInterrupt

    monkeypatch.setattr(environment, "run_logged", run)
    monkeypatch.setattr(environment, "find_uv", lambda: None)
    return calls


@pytest.fixture
def changed(repository: Path, git: Any, inspected_once: None) -> Path:
    commit(repository, git, requirements__txt="a==1\n")
    commit(repository, git, requirements__txt="a==2\n")
    return repository


def test_an_interrupted_one_is_made_again(
    changed: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch, git: Any
) -> None:
    monkeypatch.setenv("interrupted", "1")
    with pytest.raises(KeyboardInterrupt), at_revision("HEAD~1", changed):
        pass
    monkeypatch.delenv("interrupted")
    for _ in range(2):
        with at_revision("HEAD~1", changed) as side:
            assert Path(side.argv[0]).is_relative_to(cache_folder())
            assert output(side) == "2", "HEAD~1 has the program of the second commit"
    assert [("venv" if "-m venv" in call else "pip") for call in calls] == ["venv", "pip"] * 2
    assert all(call.endswith("project/requirements.txt") for call in calls[1::2])


def test_uv_is_used_where_present(changed: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch, git: Any) -> None:
    for module in ("environment", "prepare"):
        monkeypatch.setattr(f"profiler.check.worktree.{module}.find_uv", lambda: "/bin/uv")
    with at_revision("HEAD~1", changed):
        pass
    create, install = calls
    assert create.startswith(f"/bin/uv venv --no-project --python {sys.executable} ")
    assert install.startswith(f"/bin/uv pip install --python {cache_folder()}")
    commit(changed, git, pyproject__toml="[project]\nname = 'p'\n", uv__lock="1")
    commit(changed, git, uv__lock="2")
    for _ in range(2):
        with at_revision("HEAD~1", changed):
            pass
    assert [call.split()[:3] for call in calls[2:]] == [["/bin/uv", "sync", "--frozen"]] * 2
    assert len(list(cache_folder().glob(f"*/{COMPLETE}"))) == 2


def test_uv_is_not_used_where_only_pip_knows_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uv").write_text("#!/bin/sh\n")
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    use_uv(monkeypatch)
    assert environment.find_uv() == str(tmp_path / "uv")
    monkeypatch.setattr(environment, "_PIP_FILES", (str(tmp_path / "uv"),))
    assert environment.find_uv() is None
    monkeypatch.setattr(environment, "_PIP_FILES", ())
    monkeypatch.setenv("PIP_INDEX_URL", "https://example.org")
    assert environment.find_uv() is None


def test_other_checks_wait_for_an_environment_with_a_project(
    changed: Path, calls: list[str], git: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the code of one revision; without a project any number of checks may use it."""

    def waits() -> bool:
        with (next(cache_folder().glob("*.lock"))).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    with at_revision("HEAD~1", changed):
        assert not waits()
    shutil.rmtree(cache_folder())
    commit(changed, git, requirements__txt="-e .\n", setup__py="")
    commit(changed, git, requirements__txt="-e .\n-c a\n")
    with at_revision("HEAD~1", changed):
        assert waits()
        assert "--no-deps -e" in calls[-1]
    assert not waits()


def test_other_versions_have_another_environment(changed: Path, calls: list[str]) -> None:
    (changed / "requirements.txt").write_text("a==3\n")
    for rev in ("HEAD~1", "HEAD"):
        with at_revision(rev, changed, ("python", "train.py")):
            pass
    assert len({call for call in calls if "-m venv" in call}) == 2


def test_the_users_environment_if_requested(changed: Path, calls: list[str]) -> None:
    with at_revision("HEAD~1", changed, environment="same") as side:
        assert side.argv == COMMAND
        assert [note.values["environment"] for note in side.notes] == ["same"]
    assert calls == []


@pytest.mark.usefixtures("inspected_once")
def test_where_no_environment_can_be_made(repository: Path, calls: list[str], git: Any) -> None:
    commit(repository, git, environment__yml="a")
    commit(repository, git, environment__yml="b")
    assert_refused(r"environment\.yml", "HEAD~1", repository)
    with at_revision("HEAD~2", repository) as side:
        assert side.notes[0].values["environment"] == "nothing-to-install"
    with at_revision("HEAD~1", repository, ("conda", "run", "x")) as side:
        assert (side.notes[0].values["environment"], side.notes[0].values["program"]) == ("manager", "conda")
    assert calls == []


@pytest.mark.usefixtures("inspected_once")
def test_ignored_files_require_nothing(repository: Path, calls: list[str], git: Any) -> None:
    commit(repository, git, __gitignore="uv.lock\n")
    (repository / "uv.lock").write_text("x")
    with at_revision("HEAD", repository) as side:
        assert side.notes == ()


def test_commands_use_python_and_scripts_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user, revision = tmp_path / "user", tmp_path / "revision" / "bin"
    for folder, names in ((user, ("python", "torchrun", "only-mine")), (revision, ("python", "torchrun"))):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_text(f"#!{folder}/python\n")
            (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{user}:/usr/bin:/bin")
    interpreter = Interpreter(str(user / "python"), (), (), {}, {})
    made = Environment(tmp_path / "revision")
    python, torchrun = str(revision / "python"), str(revision / "torchrun")
    for words, expected in (
        (("python3.9", "a.py"), (python, "a.py")),
        (("/opt/shims/python", "a.py"), (python, "a.py")),
        ((str(user / "python"), "a.py"), (python, "a.py")),
        (("torchrun", "a.py"), (torchrun, "a.py")),
        ((str(user / "torchrun"), "a.py"), (torchrun, "a.py")),
        (("nice", str(user / "python"), "a"), ("nice", python, "a")),
        (("./run.sh", "a"), ("./run.sh", "a")),
    ):
        assert made.command(words, interpreter) == expected
    with pytest.raises(ProfilerError, match="do not contain only-mine"):
        made.command(("only-mine",), interpreter)
    assert made.variables()["PATH"].split(":")[0] == str(revision)


def test_a_python_that_cannot_be_inspected(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no module >&2\nexit 1\n")
    broken.chmod(0o755)
    for python, message in ((broken, "no module"), (tmp_path / "nowhere", "cannot find out")):
        with pytest.raises(ProfilerError, match=message):
            inspect_interpreter(str(python), tmp_path)


# ---------------------------------------------------------------- pip ends with the check

BUILD = (
    "import os, subprocess, sys, time\n"
    "wait = [sys.executable, '-c', 'import os, sys, time; open(sys.argv[1], \"w\").write(str(os.getpid()) + \"!\");'\n"
    "       'time.sleep(600)']\n"
    "subprocess.Popen([*wait, 'child'])\n"
    "subprocess.Popen([*wait, 'session'], start_new_session=True)\n"
    "subprocess.Popen(['sh', '-c', '\"$@\" & exit', 'sh', *wait, 'orphan'])\n"
    "open('root', 'w').write(str(os.getpid()) + '!')\n"
    "time.sleep(600)\n"
)
"""A build may start a child, a process in its own session, and one that has lost its parent."""
CHECK = (
    "import sys; from pathlib import Path; from profiler.check.worktree.environment import run_logged\n"
    "folder = Path(sys.argv[1])\n"
    "try: run_logged([sys.executable, '-c', sys.argv[2]], folder, folder / 'log', 'cannot')\n"
    "except KeyboardInterrupt: print('over', flush=True); sys.stdin.read()\n"
)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_all_processes_of_pip_end_with_the_check(tmp_path: Path, number: signal.Signals) -> None:
    files = [tmp_path / name for name in ("root", "child", "session", "orphan")]
    command = [sys.executable, "-c", CHECK, str(tmp_path), BUILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as check:
        until(lambda: all(file.exists() and file.read_text().endswith("!") for file in files))
        pids = [int(file.read_text()[:-1]) for file in files]
        assert all(map(is_alive, pids))
        check.send_signal(number)
        if number == signal.SIGINT:
            assert check.stdout is not None
            assert check.stdout.readline() == b"over\n"
            assert not any(map(is_alive, pids)), "it did not wait for their end"
    try:
        until(lambda: not any(map(is_alive, pids)))
    finally:
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)


def test_ctrl_c_of_a_terminal_does_not_reach_pip(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_logged([sys.executable, "-c", "import os; print(os.getpgrp(), os.getsid(0))"], tmp_path, log, "")
    group, session = map(int, log.read_text().split())
    assert group == session != os.getsid(0)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([sys.executable, "-c", "raise SystemExit('why')"], "cannot: why"),
        ([sys.executable, "-c", "exit(3)"], "exit code 3"),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], "exit code -9"),
        (["/nowhere/python"], "cannot: /nowhere/python: No such file"),
    ],
)
def test_a_command_that_fails_is_one_line(tmp_path: Path, command: list[str], message: str) -> None:
    (tmp_path / "log").write_text("an earlier line\n")
    with pytest.raises(ProfilerError, match=message):
        run_logged(command, tmp_path, tmp_path / "log", "cannot")
