"""SIGTERM and SIGHUP end a check as Ctrl-C does: programs ended, the worktree gone, what was measured reported."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from profiler.check.speed.interrupts import last_signal

_STOPS: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stoppable() -> Iterator[None]:
    """Within it the first of these signals raises; later ones do not disturb what cleans up. One that is ignored (as
    under nohup) stays so.

    :raises KeyboardInterrupt: with the number of the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal came
        if not came:
            came = True
            raise KeyboardInterrupt(number)

    heeded = [number for number in _STOPS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def code_of(stop: KeyboardInterrupt) -> int:
    """The exit code, as a shell tells of a program that a signal ended: 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP."""
    number = stop.args[0] if stop.args else last_signal()  # while programs run, others note the signals
    return 128 + int(number or signal.SIGINT)
