"""Defers Ctrl-C, SIGTERM and SIGHUP to moments at which no controlled program can be lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KEEP: Final = (signal.SIG_IGN, None)
"""Handlers that are left alone: ignored (nohup), or set by a C library, which could not be restored."""
_pending: Final[list[int]] = []
_last: Final[list[int]] = []


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Record these signals instead of handling them, until `raise_deferred` or the end of the block.

    :raises KeyboardInterrupt: at the end, if a signal is still pending.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.signal(number, _record) for number in _SIGNALS if signal.getsignal(number) not in _KEEP}
    try:
        yield
        raise_deferred()
    finally:
        _pending.clear()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def raise_deferred() -> None:
    """:raises KeyboardInterrupt: a signal is pending."""
    if _pending:
        _pending.clear()
        raise KeyboardInterrupt


def last_signal() -> int | None:
    """The last signal that was deferred, whether or not it has been raised; None if there was none."""
    return _last[-1] if _last else None


def _record(number: int, _: FrameType | None) -> None:
    _pending.append(number)
    _last[:] = [number]
