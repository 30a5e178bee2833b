"""Counts the files that a program opens for writing, by the program's lines.

Python's `open` and `os.open` are replaced, and torch's writer of files, which opens them in C++. Files that other
native code opens by itself are not counted. An audit hook of Python would cost more: it is called for each frame that
counting operators reads.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Any, Final

from profiler.agent.patching import STATE
from profiler.counting.operators import Operator, OperatorCounter, OperatorKind
from profiler.virtual import private_api

_WRITES: Final = os.O_WRONLY | os.O_RDWR
_NO_FILES: Final = ("/dev/", "/proc/", "/sys/")
_COMPILERS: Final = ("/torch/_inductor/", "/triton/", "/numba/")
"""Parts of names of source files that write compiled code where there is none of an earlier run."""


class FileCounter:
    """Counts the files that a process opens for writing, from `install` on."""

    def __init__(self, counter: OperatorCounter) -> None:
        self._counter = counter
        self._number = counter.number(Operator("", OperatorKind.FILE, allocates=False, amount=None))
        self._thread = _Thread()

    def install(self, stack: ExitStack) -> None:
        """Replace the functions, until the stack is closed."""
        writer: Any = private_api.file_writer()
        opened = self.opened

        class FileWriter(writer):  # type: ignore[misc]
            def __init__(self, file: Any, *args: Any, **kwargs: Any) -> None:
                super().__init__(file, *args, **kwargs)
                frame = sys._getframe(1)
                if isinstance(file, (str, os.PathLike)):  # else the program has opened it, or keeps it in memory
                    opened(file, frame)
                elif isinstance(file, io.FileIO) and frame.f_code.co_qualname == private_api.OPENS_FOR_WRITER:
                    opened(file.name, frame)

        in_python = _Open(io.open, lambda args, kwargs: _writes(*args[1:2], **kwargs), self)
        in_system = _Open(os.open, lambda args, kwargs: bool(_flags(*args[1:2], **kwargs) & _WRITES), self)
        private_api.set_file_writer(FileWriter)
        stack.callback(private_api.set_file_writer, writer)
        for module, function in ((builtins, in_python), (io, in_python), (os, in_system)):
            stack.callback(setattr, module, "open", module.open)
            module.open = function  # type: ignore[attr-defined]

    def opened(self, file: Any, frame: FrameType) -> None:
        """Count a file at the line of the program at or above a frame."""
        path = os.fsdecode(file)
        recorder = STATE.recorder
        if path.startswith(_NO_FILES) or (recorder and path.startswith(f"{recorder.directory.parent}{os.sep}")):
            return
        outer: FrameType | None = frame
        while outer is not None and not self._counter.is_user_file(name := outer.f_code.co_filename):
            if any(part in name for part in _COMPILERS):
                return
            outer = outer.f_back
        site = -1 if outer is None else self._counter.site_number(outer)
        self._counter.calls.append(self._number + site + 1)

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any, is_writing: bool, frame: FrameType) -> Any:
        """Call a function that opens a file. It may call others: `open` calls what the program gives as its opener."""
        file = args[0] if args else kwargs.get("file", kwargs.get("path"))
        if not is_writing or self._thread.is_inside or isinstance(file, int):
            return function(*args, **kwargs)
        self._thread.is_inside = True
        try:
            result = function(*args, **kwargs)
        finally:
            self._thread.is_inside = False
        self.opened(file, frame)
        return result


class _Thread(threading.local):
    is_inside = False


class _Open:
    """Stands for a function that opens files. It is no function of Python, as these become methods of classes that have
    them as attributes."""

    def __init__(
        self, original: Callable[..., Any], is_writing: Callable[[Any, Any], bool], counter: FileCounter
    ) -> None:
        self._original, self._is_writing, self._counter = original, is_writing, counter
        self.__name__ = self.__qualname__ = original.__name__
        self.__doc__, self.__wrapped__ = original.__doc__, original
        self.__module__ = "io" if original is io.open else "os"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        is_writing = self._is_writing(args, kwargs)
        return self._counter.call(self._original, args, kwargs, is_writing, sys._getframe(1))

    def __reduce__(self) -> str:
        return self.__name__  # pickled by its name, as a function is


def _writes(mode: str = "r", **_: Any) -> bool:
    return any(letter in mode for letter in "wax+")


def _flags(flags: int = os.O_RDONLY, **_: Any) -> int:
    return flags
