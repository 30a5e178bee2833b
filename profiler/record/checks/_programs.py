"""Starts small programs for checks: one that answers, and a Python that waits."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_WAIT: Final = "import sys; print('ready', flush=True); sys.stdin.read()"
_ALLOW_TRACING: Final = (
    "import ctypes, os; ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(os.getppid()), 0, 0, 0); "
)
"""PR_SET_PTRACER for the parent, as a recorded program calls it."""


class ProgramError(Exception):
    """A program that did not answer; the message is one line."""


def output_of(command: list[str], seconds: float) -> str:
    """Run `command` and return what it prints.

    :raises ProgramError: it cannot be started, fails, or takes longer than `seconds`.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except OSError as error:
        raise ProgramError(f"cannot start {command[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise ProgramError(f"no answer within {seconds:g} s") from error
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise ProgramError(lines[-1] if lines else f"it exited with {done.returncode} and printed nothing")
    return done.stdout


@contextmanager
def waiting_python(python: str, *, allow_tracing: bool) -> Iterator[int]:
    """The PID of a Python that waits until the block ends.

    :param allow_tracing: it lets this process trace it, as a recorded program does.
    :raises ProgramError: it does not start.
    """
    try:
        process = subprocess.Popen(
            [python, "-c", (_ALLOW_TRACING if allow_tracing else "") + _WAIT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    except OSError as error:
        raise ProgramError(f"cannot start {python}: {error.strerror}") from error
    with process:
        try:
            if process.stdout is None or process.stdout.readline() != "ready\n":
                raise ProgramError(f"{python} does not run a line of Python")
            yield process.pid
        finally:
            process.kill()
