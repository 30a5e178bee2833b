"""Ctrl-C, SIGTERM, SIGHUP while programs run by turns: obeyed where none of them can be lost, a moment later."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FOREIGN: Final = (signal.SIG_IGN, None)
"""Handlers that stay: ignored (nohup), or set by a library of C, which could not be put back."""
_came: Final[list[int]] = []
_last: Final[list[int]] = []


@contextmanager
def held() -> Iterator[None]:
    """Within it the signals are only noted, for `obey`; what came to its end is obeyed there.

    :raises KeyboardInterrupt: at the end, of what nobody obeyed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _note) for number in _STOPS if signal.getsignal(number) not in _FOREIGN}
    try:
        yield
        obey()
    finally:
        _came.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def obey() -> None:
    """:raises KeyboardInterrupt: a signal has come."""
    if _came:
        _came.clear()
        raise KeyboardInterrupt


def came_by() -> int | None:
    """The signal that came last, obeyed or not; None: none has come yet."""
    return _last[-1] if _last else None


def _note(number: int, _: FrameType | None) -> None:
    _came.append(number)
    _last[:] = [number]
