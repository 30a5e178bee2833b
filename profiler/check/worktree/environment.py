"""Makes and caches the environment of a revision that requires other packages: pip makes it whole or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.check.speed.watchdog import watchdog_process
from profiler.check.worktree.checkout import low_space
from profiler.check.worktree.interpreter import Interpreter, inspect_interpreter, is_python, script_interpreter
from profiler.check.worktree.requirements import Requirements, local_projects
from profiler.core.errors import ProfilerError

COMPLETE: Final = "whole"
"""A file that is written last: an environment without it belongs to an interrupted check and is made again."""
_CACHE_DAYS: Final = 60
"""An environment with torch takes gigabytes; one that was not used for so long is removed."""
_DAY_S: Final = 86400.0
_IGNORED_PACKAGES: Final = ("pip", "setuptools", "wheel")
_PIP: Final = ("-m", "pip", "--disable-pip-version-check", "--no-input")
_REDIRECTING: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT")
"""Variables that would have pip look at or install into another place than the environment."""


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment of a revision."""

    python: str
    scripts: tuple[Path, ...]
    """Folders of console scripts, in the order of PATH."""

    def command(self, argv: Sequence[str], user: Interpreter) -> tuple[str, ...]:
        """`argv` with this environment's Python and scripts in place of the user's.

        :raises ProfilerError: the first word is a script that this environment does not have.
        """
        program, *arguments = argv
        arguments = [self.python if argument == user.executable else argument for argument in arguments]
        if is_python(program):
            return (self.python, *arguments)
        name = Path(program).name
        if "/" in program and Path(program).parent != user.scripts:
            return (program, *arguments)
        for folder in self.scripts:
            if (script := folder / name).exists():
                # run by this Python, whatever its first line says: only that finds the revision's own project
                python = (self.python,) if script_interpreter(script) else ()
                return (*python, str(script), *arguments)
        users = shutil.which(program)
        if users and Path(users).parent == user.scripts and script_interpreter(Path(users)):
            raise ProfilerError(f"the revision's requirements do not contain {name}: --set environment=same uses yours")
        return (program, *arguments)

    def variables(self) -> dict[str, str]:
        """The variables that `activate` would set."""
        path = [*map(str, self.scripts), os.environ.get("PATH", os.defpath)]
        return {
            "PATH": os.pathsep.join(path),
            "VIRTUAL_ENV": str(Path(self.python).parents[1]),
            "PYTHONHOME": "",
        }


def make_environment(
    requirements: Requirements, python: Interpreter, folder: Path, announce: Callable[[str], None]
) -> tuple[Environment, Path, bool]:
    """An environment with what a revision requires, its folder in the cache, and whether it was made now.

    :param folder: private to this check; local projects are installed in an environment of their own in it.
    :raises ProfilerError: it cannot be made.
    """
    home, is_new = _cached_home(requirements, python, announce)
    if not requirements.projects:
        return Environment(str(home / "bin" / "python"), (home / "bin",)), home, is_new
    announce(f"installing {', '.join(project.name for project in requirements.projects)} of the revision")
    layer = _install_projects(home, folder, requirements.projects)
    return Environment(str(layer / "bin" / "python"), (layer / "bin", home / "bin")), home, is_new


def changed_versions(user: Interpreter, python: str, folder: Path) -> list[tuple[str, str, str]]:
    """(package, revision's version, user's version) of packages that differ, torch first."""
    packages = inspect_interpreter(python, folder).packages
    return [
        (name, packages[name], version)
        for name, version in sorted(user.packages.items(), key=lambda item: (item[0] != "torch", item[0]))
        if packages.get(name, version) != version and name not in _IGNORED_PACKAGES
    ]


# ---------------------------------------------------------------- the cache


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/training-profiler/environments, by default in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if Path(base).is_absolute() else Path("~/.cache").expanduser()
    return root / "training-profiler" / "environments"


def _cached_home(requirements: Requirements, python: Interpreter, announce: Callable[[str], None]) -> tuple[Path, bool]:
    """The folder of an environment with what `requirements` needs, and whether it was made now.

    :raises ProfilerError: pip or venv failed, or the cache cannot be written.
    """
    cache = cache_folder()
    pip_settings = sorted((name, value) for name, value in os.environ.items() if name.startswith("PIP_"))
    key = json.dumps([requirements.key(), python.version, pip_settings])
    home = cache / hashlib.sha256(key.encode()).hexdigest()[:16]
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(home.with_suffix(".lock"), announce):
            is_new = not ((home / COMPLETE).exists() and (home / "bin" / "python").exists())
            if is_new:
                _make(home, requirements, python, announce)
            os.utime(home / COMPLETE)
            for marker in cache.glob(f"*/{COMPLETE}"):
                if time.time() - marker.stat().st_mtime > _CACHE_DAYS * _DAY_S:
                    marker.unlink()
                    shutil.rmtree(marker.parent, ignore_errors=True)
                    marker.parent.with_suffix(".log").unlink(missing_ok=True)
    except OSError as error:
        raise ProfilerError(f"cannot make an environment in {cache}: {error.strerror or error}") from error
    return home, is_new


@contextmanager
def _locked(lock: Path, announce: Callable[[str], None]) -> Iterator[None]:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            announce("waiting for another check that makes the same environment")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(home: Path, requirements: Requirements, python: Interpreter, announce: Callable[[str], None]) -> None:
    log = home.with_suffix(".log")
    log.unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)
    announce(f"making an environment for the revision's requirements, once: pip writes to {log}")
    try:
        create_venv(python.executable, home, log)
        install(home, requirements, log)
        _uninstall_projects(home, requirements.projects, log)
    except BaseException:  # Ctrl-C too: an incomplete environment with torch takes gigabytes
        shutil.rmtree(home, ignore_errors=True)
        raise
    (home / COMPLETE).touch()


# ---------------------------------------------------------------- venv and pip


def create_venv(python: str, home: Path, log: Path, *options: str) -> None:
    """Make an empty environment of `python` in `home`.

    :raises ProfilerError: its Python cannot make one.
    """
    run_logged([python, "-m", "venv", *options, str(home)], home.parent, log, "cannot make an environment")


def install(home: Path, requirements: Requirements, log: Path) -> None:
    """Install everything that is required, in one resolution, local projects included.

    :raises ProfilerError: pip failed.
    """
    folder = requirements.folder
    constraints = home / "constraints.txt"
    constraints.write_text("\n".join(requirements.constraints) + "\n", encoding="utf-8")
    in_files = local_projects(folder, requirements.files)
    arguments = [argument for file in requirements.files for argument in ("-r", str(file))]
    arguments += [str(project) for project in requirements.projects if project not in in_files]
    for file in filter(Path.is_file, (folder / "constraints.txt", constraints)):
        arguments += ["-c", str(file)]
    run_logged([*_pip(home), "install", *arguments], folder, log, "pip cannot install what the revision requires")


def _uninstall_projects(home: Path, projects: Sequence[Path], log: Path) -> None:
    """Remove local projects, so that the cache never holds a revision's code: each check installs its own."""
    local = inspect_interpreter(str(home / "bin" / "python"), home).local if projects else {}
    names = [name for name, (folder, _) in local.items() if Path(folder).resolve() in projects]
    if names:
        run_logged([*_pip(home), "uninstall", "--yes", *names], home, log, "pip cannot uninstall")


def _install_projects(home: Path, folder: Path, projects: Sequence[Path]) -> Path:
    """Make an environment in `folder` on top of `home` that adds `projects`, editable; `home` is not changed.

    :raises ProfilerError: pip failed.
    """
    layer, log = folder / "environment", folder / "pip.log"
    create_venv(str(home / "bin" / "python"), layer, log, "--without-pip")
    (below,) = home.glob("lib/python*/site-packages")
    (above,) = layer.glob("lib/python*/site-packages")
    # addsitedir instead of the bare path, because packages below have .pth files
    (above / "_below.pth").write_text(f"import site; site.addsitedir({str(below)!r})\n", encoding="utf-8")
    editable = [argument for project in projects for argument in ("-e", str(project))]
    command = [*_pip(home), "--python", str(layer / "bin" / "python"), "install", "--no-deps", *editable]
    run_logged(command, folder, log, "pip cannot install the revision's own project")
    return layer


def _pip(home: Path) -> list[str]:
    return [str(home / "bin" / "python"), *_PIP]


def run_logged(command: Sequence[str], folder: Path, log: Path, failure: str) -> None:
    """Run venv or pip in its own session, so that Ctrl-C reaches only us, and the watchdog ends it with all it started.

    The process does not die with us by itself: what pip has started could then not be found any more.

    :param failure: begins the message if it fails; the last error in its output follows.
    :raises ProfilerError: it cannot be started or fails.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _REDIRECTING}
    with log.open("ab") as file, watchdog_process() as watchdog:
        begin = file.tell()
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ProfilerError(f"{failure}: {command[0]}: {error.strerror}") from error
        watchdog.watch(process.pid)
        code = process.wait()
    if code:
        output = log.read_bytes()[begin:].decode("utf-8", "replace")
        lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("[notice]")]
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
        last = (errors or lines or [f"exit code {code}"])[-1]
        raise ProfilerError(f"{failure}: {last}{low_space(log.parent)} (all of it: {log})")
