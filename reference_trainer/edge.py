"""The edge of a program of the trainer: what goes wrong becomes one line on stderr and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, Never

from reference_trainer.errors import USAGE, TrainerError

INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
"""As a shell reports a program that SIGPIPE ended."""
TERMINATED: Final = 143
"""As a shell reports a program that SIGTERM ended."""

_asked: list[int] = []
"""Signals that asked the program to end."""


def obey() -> None:
    """End where a signal asked for it and Python swallowed that: it ignores what is raised in a `__del__`."""
    if _asked:
        raise KeyboardInterrupt


def guarded(work: Callable[[], int], interrupted: str = "interrupted") -> int:
    """Do the program's work and give its exit code.

    :param interrupted: what Ctrl-C and SIGTERM are answered with, where the KeyboardInterrupt has no words of its own.
    """
    with _signals():
        return _guarded(work, interrupted)


def _guarded(work: Callable[[], int], interrupted: str) -> int:
    try:
        code = work()
        obey()
        sys.stdout.flush()  # here, so that a full disk is met below and not at the interpreter's exit
        return code
    except TrainerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as error:
        print(str(error) or interrupted, file=sys.stderr)
        return TERMINATED if signal.SIGTERM in _asked else INTERRUPTED
    except OSError as error:  # what is read and written has its own words: this is the output
        _forget_output()
        if isinstance(error, BrokenPipeError):  # the reader went away
            return BROKEN_PIPE
        print(f"error: cannot write the output: {error.strerror or error}", file=sys.stderr)
        return USAGE


@contextmanager
def _signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt and are remembered; handlers that others installed stay."""
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    if threading.current_thread() is not threading.main_thread():
        usual = {}  # only the main thread may, and only it is interrupted
    _asked.clear()
    ours = [number for number, handler in usual.items() if signal.getsignal(number) is handler]
    swallowed = sys.unraisablehook

    def tell(what: sys.UnraisableHookArgs) -> None:
        """A traceback for what Python ignores, but for our own interrupt: `obey` follows it, and that is one line."""
        if not (_asked and what.exc_type is KeyboardInterrupt):
            swallowed(what)

    try:
        for number in ours:
            signal.signal(number, _ask)
        if ours:
            sys.unraisablehook = tell
        yield
    finally:
        if sys.unraisablehook is tell:
            sys.unraisablehook = swallowed
        for number in ours:
            signal.signal(number, usual[number])
        _asked.clear()


def _ask(number: int, _: FrameType | None) -> Never:
    _asked.append(number)
    raise KeyboardInterrupt


def _forget_output() -> None:
    """What is still buffered must not fail again at the interpreter's exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
