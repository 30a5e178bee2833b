"""Runs git without hooks, monitors, prompts or writes to the index, and reads other people's repositories harmlessly.

A repository's configuration names programs that git runs: hooks, a file system monitor, filters of content, transports.
No other module starts git.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.core.errors import ProfilerError

_QUIET: Final = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor="),
    *("-c", "gc.auto=0"),
    *("-c", "advice.detachedHead=false"),
)
"""No hooks, no file system monitor, no housekeeping. git before 2.36 would run a monitor that is named `false`."""
_OTHER_REPOSITORY: Final = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)
"""Variables that a git hook sets for us; each would point git to another repository than that of the folder."""
_ENVIRONMENT: Final = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
}
_OFFLINE: Final = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
"""A clone may lack objects, which git would fetch by a transport or an SSH command of the repository's choice."""
_FILTERS: Final = ("config", "--null", "--name-only", "--get-regexp", r"^filter\.")

_NO_FILTERS: Final = 1
"""Exit code of git-config where no key matches."""


@dataclass(frozen=True, slots=True)
class GitResult:
    """Exit code and output of a git command."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The line that tells why it failed."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("fatal:", "error:"))]
        line = (errors or lines or [f"exit code {self.code}"])[0]
        return line.removeprefix("fatal: ").removeprefix("error: ")


def run_git(
    folder: Path,
    arguments: Sequence[str],
    *,
    stdin: str | None = None,
    seconds: float | None = None,
    variables: Mapping[str, str] = {},
) -> GitResult:
    """Run git in `folder`, in its own session, so that the terminal's Ctrl-C does not reach it.

    It does not prompt or lock the index, answers in English, and leaves large files as pointers. Filters of content
    stay on: only they tell what a file of git-lfs, for example, is in a checkout, and `check` runs the program of that
    checkout anyway.

    :param seconds: git is killed after this time, and on Ctrl-C. With None it always completes, so that its effect can
        be undone.
    :param variables: for its environment.
    :raises ProfilerError: there is no git.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _OTHER_REPOSITORY}
    try:
        process = subprocess.Popen(
            ["git", *_QUIET, *arguments],
            cwd=folder,
            env={**environment, **_ENVIRONMENT, **variables},
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            start_new_session=True,
        )
    except FileNotFoundError as error:
        if not folder.is_dir():
            raise ProfilerError(f"{folder}: there is no such folder") from error
        raise ProfilerError("git is needed here, and there is none on PATH") from error
    with process:
        try:
            out, err = process.communicate(stdin, seconds)
        except (KeyboardInterrupt, subprocess.TimeoutExpired) as error:
            if seconds is not None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            if isinstance(error, KeyboardInterrupt):
                raise
    return GitResult(process.returncode, out, err)


def read_git(folder: Path, arguments: Sequence[str], seconds: float) -> str | None:
    """Return what git prints in a repository that may be other people's; None where it fails or takes longer than
    `seconds`.

    No program that the repository names is run, filters included, and nothing is fetched. Without its filter, a file
    whose content git has to read again differs from its commit.
    """
    try:
        begin = time.monotonic()
        listed = run_git(folder, _FILTERS, seconds=seconds)
        filters = {key.rpartition(".")[0] for key in listed.out.split("\0") if key}
        # In `-c`, the name of a filter ends at `=`, which would leave it on.
        if listed.code not in {0, _NO_FILTERS} or any("=" in name for name in filters):
            return None
        seconds -= time.monotonic() - begin
        settings = [f"{name}.{key}" for name in filters for key in ("clean=", "process=", "required=false")]
        options = [word for setting in settings for word in ("-c", setting)]
        result = run_git(folder, [*options, *arguments], seconds=seconds, variables=_OFFLINE)
    except (ProfilerError, OSError):
        return None
    return result.out.strip() if result.code == 0 else None
