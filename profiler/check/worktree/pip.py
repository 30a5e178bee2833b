"""Runs venv and pip for an environment: their output goes to a log, and a failure is its last line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from profiler.check.speed.watchdog import watchdog_process
from profiler.check.worktree.interpreter import asked
from profiler.check.worktree.plan import Plan
from profiler.check.worktree.worktree import room
from profiler.core.errors import ProfilerError

_PIP: Final = ("-m", "pip", "--disable-pip-version-check", "--no-input")
_ELSEWHERE: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT")
"""Variables that would have pip see or install something else than the environment."""


def make(python: str, home: Path, log: Path) -> None:
    """An empty environment of `python` in `home`.

    :raises ProfilerError: its Python cannot make one.
    """
    _run([python, "-m", "venv", str(home)], home.parent, log, "cannot make an environment")


def install(home: Path, plan: Plan, log: Path) -> None:
    """Everything that `plan` requires, in one resolution; a project whose build must be asked is installed with it.

    :raises ProfilerError: pip failed.
    """
    requirements, constraints = home / "requirements.txt", home / "constraints.txt"
    requirements.write_text("\n".join(plan.lines) + "\n", encoding="utf-8")
    constraints.write_text("\n".join(plan.constraints) + "\n", encoding="utf-8")
    if plan.lines or plan.untold:
        words = ["install", "-r", str(requirements), "-c", str(constraints), *map(str, plan.untold)]
        _run([*_pip(home), *words], plan.folder, log, "pip cannot install what the revision requires")


def remove(home: Path, project: Path, log: Path) -> None:
    """Take out a project that was installed for its requirements only: each check installs its own."""
    local = asked(str(home / "bin" / "python"), home).local
    names = [name for name, (folder, _) in local.items() if Path(folder).resolve() == project.resolve()]
    if names:
        _run([*_pip(home), "uninstall", "--yes", *names], home, log, "pip cannot uninstall")


def lay(home: Path, layer: Path, projects: Sequence[Path], log: Path) -> Path:
    """An environment over `home` that has `projects`, editable; `home` stays as it is.

    :raises ProfilerError: pip failed.
    """
    python = str(home / "bin" / "python")
    _run([python, "-m", "venv", "--without-pip", str(layer)], layer.parent, log, "cannot make an environment")
    (below,) = home.glob("lib/python*/site-packages")
    (above,) = layer.glob("lib/python*/site-packages")
    # addsitedir and not the bare path: packages below have .pth files of their own
    (above / "_below.pth").write_text(f"import site; site.addsitedir({str(below)!r})\n", encoding="utf-8")
    editable = [word for project in projects for word in ("-e", str(project))]
    words = [*_pip(home), "--python", str(layer / "bin" / "python"), "install", "--no-deps", *editable]
    _run(words, layer.parent, log, "pip cannot install the revision's own project")
    return layer


def _pip(home: Path) -> list[str]:
    return [str(home / "bin" / "python"), *_PIP]


def _run(words: Sequence[str], folder: Path, log: Path, what: str) -> None:
    """In a session of its own: Ctrl-C reaches us alone, and the watchdog ends what runs, builds and compilers too.

    It does not die with us by itself: what pip has started could then no longer be told from others' processes.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    with log.open("ab") as file, watchdog_process() as watchdog:
        begin = file.tell()
        try:
            process = subprocess.Popen(
                words,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ProfilerError(f"{what}: {words[0]}: {error.strerror}") from error
        watchdog.watch(process.pid)
        code = process.wait()
    if code:
        with log.open("rb") as file:
            file.seek(begin)
            said = file.read().decode("utf-8", "replace")
        raise ProfilerError(f"{what}: {_last(said) or f'exit code {code}'}{room(log.parent)} (all of it: {log})")


def _last(said: str) -> str:
    """The last error that pip named, else its last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("[notice]")]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [""])[-1].removeprefix("ERROR: ")
