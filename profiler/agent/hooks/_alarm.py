"""Calls a function in the program's main thread, between two lines of its, when it is time. A helper of torch_trace.

A program that runs no hook for a while (operators in a loop, and no boundary) would never end what grows meanwhile.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 0.5

_kept: Final[list[object]] = []
"""What the interpreter may still have to call."""


class Alarm:
    """From its making until `stop`: a thread asks twice a second whether it is time, and waits otherwise.

    For good while it is time: what is called may not be able to do its work at that moment. The thread is none of
    threading's, so that the program's list of its threads stays its own; a fork does not have it.

    :param due: asked in the alarm's thread.
    :param ring: called in the main thread, as a signal's handler is; it must not raise.
    """

    def __init__(self, due: Callable[[], bool], ring: Callable[[], None]) -> None:
        import ctypes  # some ms: only where it is needed

        def call(_: int | None) -> int:
            if not self._stopped:
                ring()
            return 0

        self._stopped = False
        self._due = due
        self._add = ctypes.pythonapi.Py_AddPendingCall
        self._call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call)
        _kept.append(self._call)
        self._end = threading.Lock()
        self._end.acquire()
        _thread.start_new_thread(self._watch, ())

    def stop(self) -> None:
        """Ring no more."""
        if not self._stopped:
            self._stopped = True
            self._end.release()

    def _watch(self) -> None:
        while not self._end.acquire(timeout=LOOK_S):
            if self._due():
                self._add(self._call, None)
