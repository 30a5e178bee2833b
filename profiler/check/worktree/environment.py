"""Makes and caches the environment of a revision that requires other packages, by uv where it is present, else by pip.

An environment is made whole or not at all. One set of requirements has one environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.check.speed.processes import watchdog_process
from profiler.check.worktree.checkout import low_space
from profiler.check.worktree.requirements import Requirements
from profiler.core.errors import ProfilerError
from profiler.core.facts import is_python

COMPLETE: Final = "whole"
"""A file that is written last: an environment without it belongs to an interrupted check and is made again."""
_UNUSED_S: Final = 60 * 86400.0
"""An environment with torch takes gigabytes; one that was not used for so long is removed."""
_IGNORED_PACKAGES: Final = ("pip", "setuptools", "wheel")
_PIP: Final = ("-m", "pip", "--disable-pip-version-check", "--no-input")
_PIP_FILES: Final = ("~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/pip.conf")
"""Where pip looks for its settings (pip's documentation, "Configuration")."""
_PIP_SOURCES: Final = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_CONFIG_FILE")
"""Variables that tell pip where packages come from."""
_REDIRECTING: Final = (
    *("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT"),
    *("UV_SYSTEM_PYTHON", "UV_PYTHON", "UV_PROJECT_ENVIRONMENT"),
)
"""Variables that would have pip or uv look at or install into another place than the environment."""
_ERRORS: Final = ("ERROR:", "error:", "×")
_CAUSES: Final = ("cause:", "Caused by:", "╰─▶")
"""How pip and uv begin an error, and uv the line after it."""


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment of a revision."""

    home: Path
    is_new: bool = False
    """Whether it was made for this check."""

    @property
    def python(self) -> str:
        return str(self.home / "bin" / "python")

    def command(self, argv: Sequence[str], user: Interpreter) -> tuple[str, ...]:
        """Return `argv` with this environment's Python and scripts in place of the user's.

        :raises ProfilerError: the first word is a script that this environment does not have.
        """
        scripts, words = self.home / "bin", list(argv)
        for at, word in enumerate(words):
            is_users = Path(word).parent == user.scripts or (at == 0 and "/" not in word)
            if word == user.executable or (at == 0 and is_python(word)):  # whatever its name and folder
                words[at] = self.python
            elif is_users and (script := scripts / Path(word).name).exists():
                words[at] = str(script)
        users = Path(shutil.which(argv[0]) or "")
        if words[0] == argv[0] and users.parent == user.scripts and script_interpreter(users):
            raise ProfilerError(
                f"the revision's requirements do not contain {users.name}: --set environment=same uses yours"
            )
        return tuple(words)

    def variables(self) -> dict[str, str]:
        """Return the variables that `activate` would set."""
        path = os.pathsep.join((str(self.home / "bin"), os.environ.get("PATH", os.defpath)))
        return {"PATH": path, "VIRTUAL_ENV": str(self.home), "PYTHONHOME": ""}


def changed_versions(user: Interpreter, python: str, folder: Path) -> list[tuple[str, str, str]]:
    """Return (package, revision's version, user's version) of packages that differ, torch first."""
    packages = inspect_interpreter(python, folder).packages
    return [
        (name, packages[name], version)
        for name, version in sorted(user.packages.items(), key=lambda item: (item[0] != "torch", item[0]))
        if packages.get(name, version) != version and name not in _IGNORED_PACKAGES
    ]


# ---------------------------------------------------------------- the cache


def cache_folder() -> Path:
    """Return $XDG_CACHE_HOME/training-profiler/environments, by default in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if Path(base).is_absolute() else Path("~/.cache").expanduser()
    return root / "training-profiler" / "environments"


@contextmanager
def revision_environment(
    requirements: Requirements, python: Interpreter, announce: Callable[[str], None]
) -> Iterator[Environment]:
    """Provide an environment with what a revision requires, from the cache or made now.

    It has the projects of one revision at a time, so other checks that need it wait for the end of the block.

    :raises ProfilerError: uv, pip or venv failed, or the cache cannot be written.
    """
    cache, uv = cache_folder(), find_uv()
    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith(("PIP_", "UV_")))
    key = json.dumps([requirements.key(), python.version, bool(uv), settings])
    home = cache / hashlib.sha256(key.encode()).hexdigest()[:16]
    with ExitStack() as stack:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(home.with_suffix(".lock").open("w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                announce("waiting for another check that uses the same environment")
                fcntl.flock(lock, fcntl.LOCK_EX)
            log = home.with_suffix(".log")
            is_new = not ((home / COMPLETE).exists() and (home / "bin" / "python").exists())
            if is_new:
                log.unlink(missing_ok=True)
                shutil.rmtree(home, ignore_errors=True)
                announce(f"making an environment for the revision's requirements, once: its log is {log}")
            try:
                _install(home, requirements, python, uv, log, is_new=is_new)
            except BaseException:  # Ctrl-C too: an incomplete environment with torch takes gigabytes
                if is_new:
                    shutil.rmtree(home, ignore_errors=True)
                raise
            (home / COMPLETE).touch()
            if not requirements.projects:
                fcntl.flock(lock, fcntl.LOCK_UN)
            for marker in cache.glob(f"*/{COMPLETE}"):
                if time.time() - marker.stat().st_mtime > _UNUSED_S:
                    marker.unlink()
                    shutil.rmtree(marker.parent, ignore_errors=True)
                    marker.parent.with_suffix(".log").unlink(missing_ok=True)
        except OSError as error:
            raise ProfilerError(f"cannot make an environment in {cache}: {error.strerror or error}") from error
        yield Environment(home, is_new)


# ---------------------------------------------------------------- uv and pip


def find_uv() -> str | None:
    """Return the uv to use; None where there is none, or where only pip knows the index: uv does not read pip's
    settings."""
    is_pip_configured = any(os.environ.get(name) for name in _PIP_SOURCES)
    if is_pip_configured or any(Path(name).expanduser().exists() for name in _PIP_FILES):
        return None
    return shutil.which("uv")


def _install(
    home: Path, requirements: Requirements, python: Interpreter, uv: str | None, log: Path, *, is_new: bool
) -> None:
    """Make `home` with everything that is required if it is new, and install the revision's projects in it.

    :raises ProfilerError: uv, pip or venv failed.
    """
    folder, failure = requirements.folder, "cannot install what the revision requires"
    if uv and requirements.is_locked:  # this makes the environment too
        command = [uv, "sync", "--frozen", "--project", str(folder), "--python", python.executable]
        run_logged(command, folder, log, failure, variables={"UV_PROJECT_ENVIRONMENT": str(home)})
        return
    own = str(home / "bin" / "python")
    install = [uv, "pip", "install", "--python", own] if uv else [own, *_PIP, "install"]
    if is_new:
        executable = python.executable
        create = [uv, "venv", "--no-project", "--python", executable] if uv else [executable, "-m", "venv"]
        run_logged([*create, str(home)], home.parent, log, failure)
        run_logged([*install, *requirements.arguments()], folder, log, failure)
    if requirements.projects:
        editable = [word for project in requirements.projects for word in ("-e", str(project))]
        run_logged([*install, "--no-deps", *editable], folder, log, "cannot install the revision's own project")


def run_logged(
    command: Sequence[str], folder: Path, log: Path, failure: str, variables: Mapping[str, str] = {}
) -> None:
    """Run venv, pip or uv in its own session: Ctrl-C reaches only us, and the watchdog ends it with all it started.

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
                env={**environment, **variables},
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
        lines = lines or [f"exit code {code}"]
        last = max((at for at, line in enumerate(lines) if line.startswith(_ERRORS)), default=len(lines) - 1)
        texts = [lines[last], *(line for line in lines[last + 1 : last + 2] if line.startswith(_CAUSES))]
        reason = " ".join(text.partition(" ")[2] if text.startswith((*_ERRORS, *_CAUSES)) else text for text in texts)
        raise ProfilerError(f"{failure}: {reason}{low_space(log.parent)} (all of it: {log})")


# ---------------------------------------------------------------- interpreters

_LINE_BYTES: Final = 4096
_PATIENCE_S: Final = 60.0
"""For an interpreter to start and list its packages: a second, on a cold network disk minutes."""
_INSPECT: Final = """
import json, sys, platform
from importlib import metadata
paths = [entry for entry in sys.path if entry]
for finder in sys.meta_path:
    module = sys.modules.get(getattr(finder, "__module__", ""))
    for path in getattr(module, "MAPPING", {}).values():
        paths.append(str(path).rpartition("/")[0])
packages, local = {}, {}
for distribution in metadata.distributions():
    name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
    packages.setdefault(name, distribution.version)
    url = json.loads(distribution.read_text("direct_url.json") or "{}")
    if url.get("url", "").startswith("file://") and "dir_info" in url:
        local.setdefault(name, [url["url"][7:], bool(url["dir_info"].get("editable"))])
print(json.dumps({
    "executable": sys.executable,
    "version": [sys.implementation.name, platform.python_version(), platform.machine(), sys.base_prefix],
    "import_paths": paths, "packages": packages, "local": local,
}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python interpreter with its environment."""

    executable: str
    version: tuple[str, ...]
    """Implementation, version, machine, and the prefix of its standard library."""
    import_paths: tuple[str, ...]
    """Where it finds modules, editable installs included, without the folder of the program."""
    packages: Mapping[str, str]
    """Installed package -> version."""
    local: Mapping[str, tuple[str, bool]]
    """Package that was installed from a folder -> (folder, whether it is editable)."""

    @property
    def scripts(self) -> Path:
        """Return the folder of its console scripts."""
        return Path(self.executable).parent


def find_interpreter(argv: Sequence[str], cwd: Path) -> str:
    """Return the Python that `argv` runs: its first word, that of a console script, or the one that a shell would
    find."""
    program = shutil.which(argv[0]) if "/" not in argv[0] else str(cwd / argv[0])
    if program and is_python(program):
        return os.path.normpath(program)
    if program and (python := script_interpreter(Path(program))):
        return python
    for argument in argv[1:]:  # after env, nice, taskset, ...
        if is_python(argument) and (python := shutil.which(argument)):
            return python
    return shutil.which("python") or shutil.which("python3") or sys.executable


def script_interpreter(script: Path) -> str | None:
    """Return the Python of a console script, from its first line; None if it is not such a script."""
    try:
        with script.open("rb") as file:
            line = file.readline(_LINE_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    python = next(iter(line.removeprefix("#!").split()), "") if line.startswith("#!") else ""
    return python if is_python(python) and Path(python).exists() else None


def inspect_interpreter(python: str, cwd: Path) -> Interpreter:
    """Start `python` in the user's environment and have it list what it can import.

    :raises ProfilerError: it does not run.
    """
    try:
        process = subprocess.run(
            [python, "-c", _INSPECT],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        answer = json.loads(process.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProfilerError(f"cannot find out what {python} imports: {error}") from error
    except (ValueError, IndexError) as error:
        last = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise ProfilerError(f"cannot find out what {python} imports: {last}") from error
    return Interpreter(
        executable=answer["executable"],
        version=tuple(answer["version"]),
        import_paths=tuple(answer["import_paths"]),
        packages=answer["packages"],
        local={name: (folder, editable) for name, (folder, editable) in answer["local"].items()},
    )
