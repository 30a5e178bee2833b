"""Small Pythons that checks start: one that answers, and one that stands still to be looked at."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_STANDS: Final = "import sys; print('ready', flush=True); sys.stdin.read()"
_ALLOWS: Final = "import ctypes, os; ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(os.getppid()), 0, 0, 0); "
"""As a recorded program does: PR_SET_PTRACER, for whoever started it."""


class ChildError(Exception):
    """A child that did not answer, in one line."""


def answer_of(command: list[str], seconds: float, *, environment: dict[str, str] | None = None) -> str:
    """What `command` prints.

    :raises ChildError: it cannot be started, fails, or takes longer than `seconds`.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env=environment,
            check=False,
        )
    except OSError as error:
        raise ChildError(f"cannot start {command[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise ChildError(f"no answer within {seconds:g} s") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise ChildError(lines[-1] if lines else f"it exited with {done.returncode} and said nothing")
    return done.stdout


@contextmanager
def standing(python: str, *, allows: bool) -> Iterator[int]:
    """The PID of a Python that waits for its end. `allows`: it lets us trace it, as a recorded program does.

    :raises ChildError: it does not come up.
    """
    try:
        process = subprocess.Popen(
            [python, "-c", (_ALLOWS if allows else "") + _STANDS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    except OSError as error:
        raise ChildError(f"cannot start {python}: {error.strerror}") from error
    with process:
        try:
            if process.stdout is None or process.stdout.readline() != "ready\n":
                raise ChildError(f"{python} does not run a line of Python")
            yield process.pid
        finally:
            process.kill()
