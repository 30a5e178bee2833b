"""Handles the signals that the recorder gets, and tells which of them the recorded program has got as well.

The recorder and its program share a process group: so the program keeps its terminal, and a signal that nobody can
handle ends both. A signal to the recorder alone must be passed on. A signal to the whole group must not be: a trainer
may take a second SIGTERM as "leave without a checkpoint". The kernel does not say which of both a signal was, so the
recorder asks a witness.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PASSED_ON: Final = (*STOP_SIGNALS, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGXCPU, signal.SIGWINCH)
"""A program may handle the last five and go on: a scheduler's "write a checkpoint now", a dump of its stacks."""
_ANSWER_S: Final = 10.0
"""Patience with the witness on a machine whose cores are all busy."""
_MAX_ANSWER: Final = 64
"""Bytes: one for each signal that there is."""
_WITNESS: Final = f"""
import os, signal
numbers = {[int(number) for number in PASSED_ON]}
while os.read(0, 1):
    seen = [0]
    while pending := signal.sigtimedwait(numbers, 0):
        seen.append(pending.si_signo)
    os.write(1, bytes(seen))
"""


class Witness:
    """A process in the recorder's group that blocks signals: those that reach it stay pending until it is asked.

    Its command line ends with the program's, so that `pkill -f train.py` finds both. It ends with the recorder, because
    its standard input is a pipe from there.

    :param argv: the program's command line.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        # The process inherits this mask, so that no signal can end it, not even before its first line runs.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        try:
            with suppress(OSError):
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _WITNESS, *argv],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def seen(self) -> set[int]:
        """Return the signals that have reached the witness since the last call; none where it does not answer."""
        if self._process is not None and self._process.stdin and self._process.stdout:
            question, answer = self._process.stdin.fileno(), self._process.stdout.fileno()
            with suppress(OSError):
                os.write(question, b"?")
                if select.select([answer], [], [], _ANSWER_S)[0] and (seen := os.read(answer, _MAX_ANSWER)):
                    return set(seen[1:])
            self.end()
        return set()

    def end(self) -> None:
        """End the witness."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@contextmanager
def handled_signals(
    handler: Callable[[int, FrameType | None], object],
    numbers: Sequence[signal.Signals] = STOP_SIGNALS,
    *,
    also_ignored: bool = False,
) -> Iterator[None]:
    """Have `handler` called for these signals until the block ends; outside the main thread, handle none.

    :param also_ignored: handle ignored signals too. Otherwise they stay ignored, as SIGHUP is under nohup.
    """
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            if also_ignored or signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def signals_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt at SIGTERM and SIGHUP, as at Ctrl-C, so that files are still closed and written."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with handled_signals(interrupt, (signal.SIGTERM, signal.SIGHUP)):
        yield


def end_by(number: int) -> int:
    """End this process by signal `number`, as the program that it stands for ended.

    A shell stops its script where SIGINT ended a program, and goes on where the program exited with 130.

    :returns: the exit code that a shell has for it, where the signal does not end this process: in a container, the
        first process gets none of its own signals.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # closed
            stream.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has written its core dump
    with suppress(OSError, ValueError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    with suppress(OSError):
        os.kill(os.getpid(), number)
    return 128 + number
