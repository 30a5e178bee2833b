"""Leaves our frames out of the traceback of an error that ends the program or a thread: it reads as without us."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from profiler.agent.patching import patch

_OURS: Final = os.path.dirname(__file__) + os.sep  # noqa: PTH120 - as code objects have it


def hide_our_frames() -> None:
    """From now on; a program that has a hook of its own for errors, or sets one, has the frames as they are."""
    if sys.excepthook is sys.__excepthook__:
        patch(sys, "excepthook", _of_program)
    if threading.excepthook is threading.__excepthook__:
        patch(threading, "excepthook", _of_thread)


def _of_program(original: Callable[..., Any]) -> Callable[..., Any]:
    def excepthook(kind: type[BaseException], value: BaseException, _: TracebackType | None) -> Any:
        _strip(value)
        return original(kind, value, value.__traceback__)

    return excepthook


def _of_thread(original: Callable[..., Any]) -> Callable[..., Any]:
    def excepthook(args: Any) -> Any:
        if args.exc_value is None:
            return original(args)
        _strip(args.exc_value)
        shown = (args.exc_type, args.exc_value, args.exc_value.__traceback__, args.thread)
        return original(threading.ExceptHookArgs(shown))

    return excepthook


def _strip(error: BaseException) -> None:
    """Of an error, and of those that led to it, as far as one gets: a handler of a signal may raise in the middle."""
    with suppress(Exception):
        _strip_all(error)


def _strip_all(error: BaseException) -> None:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _without_ours(one.__traceback__)
        waiting += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    first = at = _next(trace)
    while at is not None:
        at.tb_next = _next(at.tb_next)
        at = at.tb_next
    return first


def _next(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return trace
