"""Environments of revisions that require something else: made whole or not at all, and kept for the next check."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.check.worktree.interpreter import Interpreter, asked, is_python, python_of
from profiler.check.worktree.pip import install, lay, make, remove
from profiler.check.worktree.plan import Plan
from profiler.check.worktree.worktree import Place
from profiler.core.errors import ProfilerError

_WHOLE: Final = "whole"
"""Written last: an environment without it is of a check that was stopped, and is made anew."""
_KEPT_DAYS: Final = 60
"""An environment with torch takes gigabytes; one that nothing used for so long is removed."""
_DAY_S: Final = 86400.0
_TOLD: Final = 4
"""So many packages of another version are named; of the others there is a count."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A revision's own."""

    python: str
    scripts: tuple[Path, ...]
    """Folders of console scripts, in the order of PATH."""
    notes: tuple[str, ...] = ()

    def command(self, words: Sequence[str], user: Interpreter) -> tuple[str, ...]:
        """`words` with this environment's Python and scripts in the place of the user's.

        :raises ProfilerError: the first word is a script that it has not.
        """
        first, *rest = words
        others = (self.python if word == user.executable else word for word in rest)
        if is_python(first):
            return (self.python, *others)
        name = Path(first).name
        of_user = shutil.which(first)
        if "/" in first and Path(first).parent != user.scripts:
            return (first, *others)
        for folder in self.scripts:
            if (script := folder / name).exists():
                # by this Python, whatever its first line says: it alone finds the revision's own project
                return (self.python, str(script), *others) if python_of(script) else (str(script), *others)
        if of_user and Path(of_user).parent == user.scripts and python_of(Path(of_user)):
            raise ProfilerError(f"what the revision requires brings no {name}: --environment same uses yours")
        return (first, *others)

    def variables(self) -> dict[str, str]:
        """What a shell has after `activate`."""
        folders = [str(folder) for folder in self.scripts]
        return {
            "PATH": os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)]),
            "VIRTUAL_ENV": str(Path(self.python).parents[1]),
            "PYTHONHOME": "",
        }


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/training-profiler/environments, by default in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if Path(base).is_absolute() else Path("~/.cache").expanduser()
    return root / "training-profiler" / "environments"


def environment_for(plan: Plan, python: Interpreter, place: Place, say: Callable[[str], None]) -> Environment:
    """What `plan` needs, for a Python as the user's, out of the cache where an earlier check made it.

    :raises ProfilerError: pip or venv failed, the cache cannot be written.
    """
    cache = cache_folder()
    name = _key(plan, python)
    home = cache / name
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cache / f"{name}.lock", say):
            made = _make_whole(home, plan, python, say)
            os.utime(home / _WHOLE)
            _forget_old(cache)
    except OSError as error:
        raise ProfilerError(f"cannot make an environment in {cache}: {error.strerror or error}") from error
    scripts: tuple[Path, ...] = (home / "bin",)
    chosen = str(home / "bin" / "python")
    if plan.projects:
        say(f"installs {', '.join(folder.name for folder in plan.projects)} of the revision")
        layer = lay(home, place.folder / "environment", plan.projects, place.folder / "pip.log")
        chosen, scripts = str(layer / "bin" / "python"), (layer / "bin", *scripts)
    notes = (f"an environment of its own ({'made now' if made else 'made by an earlier check'}, {home})",)
    return Environment(chosen, scripts, (*notes, *_versions(python, chosen, place.folder), *plan.notes))


def _make_whole(home: Path, plan: Plan, python: Interpreter, say: Callable[[str], None]) -> bool:
    """Whether it had to be made."""
    if (home / _WHOLE).exists() and (home / "bin" / "python").exists():
        return False
    log = home.with_suffix(".log")
    log.unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)
    say(f"makes an environment for what the revision requires, once: pip writes to {log}")
    try:
        make(python.executable, home, log)
        install(home, plan, log)
        for project in plan.untold:
            remove(home, project, log)
    except BaseException:  # Ctrl-C too: half an environment with torch takes gigabytes
        shutil.rmtree(home, ignore_errors=True)
        raise
    with (home / _WHOLE).open("w", encoding="utf-8") as file:
        json.dump({"lines": plan.lines, "constraints": plan.constraints, "python": python.version}, file)
        file.flush()
        os.fsync(file.fileno())
    return True


def _key(plan: Plan, python: Interpreter) -> str:
    pip = sorted((name, value) for name, value in os.environ.items() if name.startswith("PIP_"))
    said = json.dumps([plan.key(), python.version, pip])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


@contextmanager
def _alone(lock: Path, say: Callable[[str], None]) -> Iterator[None]:
    """While no other check makes or looks at the same environment."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waits for another check that makes the same environment")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _forget_old(cache: Path) -> None:
    for marker in cache.glob(f"*/{_WHOLE}"):
        if time.time() - marker.stat().st_mtime > _KEPT_DAYS * _DAY_S:
            marker.unlink()
            shutil.rmtree(marker.parent, ignore_errors=True)
            marker.parent.with_suffix(".log").unlink(missing_ok=True)


def _versions(user: Interpreter, python: str, folder: Path) -> Iterator[str]:
    """Packages that both sides have, in other versions: a change of those is held against the code."""
    there = asked(python, folder).packages
    other = [
        f"{name} {there[name]} there, {version} here"
        for name, version in sorted(user.packages.items(), key=lambda one: (one[0] != "torch", one[0]))
        if name in there and there[name] != version and name not in {"pip", "setuptools", "wheel"}
    ]
    if other:
        more = f" and {len(other) - _TOLD} more" if len(other) > _TOLD else ""
        yield f"other versions of packages: {', '.join(other[:_TOLD])}{more}"
