"""Finds out what can be measured on this machine: runs all checks at once, each within its time.

Also starts small programs for checks: one that answers, and a Python that waits.
"""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.core.machine import NOT_KNOWN, Answer, Capability


@dataclass(frozen=True, slots=True)
class Setup:
    """The Python and the folder that the checks examine."""

    python: str
    """The interpreter that trains."""
    runs: Path
    """The folder of runs."""


@dataclass(frozen=True, slots=True)
class Check:
    """Whether one thing can be measured. Checks run in threads of their own, at the same time."""

    name: str
    title: str
    """Name of the measurement in the table."""
    order: int
    """The position of the row in the table: smaller numbers come first."""
    needed: bool
    """Recording at level standard needs it."""
    patience_s: float
    """Seconds for which its answer is waited for."""
    examine: Callable[[Setup], Answer]


def check(
    name: str, title: str, *, order: int, needed: bool = False, patience_s: float = 5.0
) -> Callable[[Callable[[Setup], Answer]], Check]:
    """Make a function a check of the doctor. It tries the thing itself where that is harmless."""
    return lambda function: Check(name, title, order, needed, patience_s, function)


def examine(setup: Setup, checks: Sequence[Check]) -> tuple[Capability, ...]:
    """Return the answer of every check. One that raises or takes too long is its own row and delays no other.

    Threads are daemons, not a pool of concurrent.futures, whose exit would wait for a driver that hangs.
    """
    answers: queue.SimpleQueue[tuple[str, Answer]] = queue.SimpleQueue()

    def run(check: Check) -> None:
        try:
            answer = check.examine(setup)
        except Exception as error:  # noqa: BLE001 - the edge to a plug-in, and its row reports it
            message = " ".join(str(error).split())
            answer = Answer(NOT_KNOWN, f"the check failed: {type(error).__name__}: {message}")
        answers.put((check.name, answer))

    begin = time.monotonic()
    for check in checks:
        threading.Thread(target=run, args=(check,), name=f"check {check.name}", daemon=True).start()
    by_name: dict[str, Answer] = {}
    while pending := [check for check in checks if check.name not in by_name]:
        until = begin + max(check.patience_s for check in pending)
        try:
            name, answer = answers.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        by_name[name] = answer
    for check in pending:
        by_name[check.name] = Answer(NOT_KNOWN, f"no answer within {check.patience_s:g} s")
    return tuple(Capability(check.name, check.title, by_name[check.name], check.needed) for check in checks)


# ---------------------------------------------------------------- programs of checks


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
