"""Counts the files that a program opens for writing, by the program's lines.

Python's `open` and `os.open` are replaced, and torch's writer of files, which opens them in C++. Files that other
native code opens by itself are not counted. An audit hook of Python would cost more: it is called for each frame that
counting operators reads.
"""

from __future__ import annotations

import builtins
import io
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from operator import index
from types import FrameType
from typing import Any, Final

from profiler.agent.patching import STATE, Patch, caller
from profiler.exact import private_api
from profiler.exact.operators import Operator, OperatorCounter, OperatorKind

_WRITES: Final = os.O_WRONLY | os.O_RDWR
_NO_FILES: Final = ("/dev/", "/proc/", "/sys/")
_COMPILERS: Final = ("torch._inductor.", "torch._vendor.quack.", "triton.", "numba.")
"""Packages that write compiled code where there is none of an earlier run. Their source files may lie in any folder:
`numba.cuda` lies in that of the distribution numba-cuda."""


class FileCounter:
    """Counts the files that a process opens for writing, from `install` on."""

    def __init__(self, counter: OperatorCounter) -> None:
        self._counter = counter
        self._number = counter.number(Operator("", OperatorKind.FILE, allocates=False, amount=None))
        self._thread = _Thread()
        self._is_installed = False
        """A program may keep the functions, and call them afterwards."""

    def install(self, stack: ExitStack) -> None:
        """Replace the functions, until the stack is closed."""
        writers, name = private_api.file_writer()
        writer: Any = getattr(writers, name)
        opened = self.opened

        class FileWriter(writer):  # type: ignore[misc]
            def __init__(self, file: Any, *args: Any, **kwargs: Any) -> None:
                super().__init__(file, *args, **kwargs)
                frame = caller(1)
                if isinstance(file, io.FileIO):
                    if frame is not None and frame.f_code.co_qualname == private_api.OPENS_FOR_WRITER:
                        opened(file.name, frame)
                else:  # the program has opened other objects, or keeps them in memory
                    opened(file, frame)

        in_python, in_system = _Open(io.open, _writes, self), _Open(os.open, _writes_low, self)
        for functions in vars(os).values():
            if isinstance(functions, set) and os.open in functions:  # such as os.supports_dir_fd
                functions.add(in_system)
                stack.callback(functions.discard, in_system)
        replacements: list[tuple[Any, str, Any]] = [(writers, name, FileWriter), (os, "open", in_system)]
        if builtins.open is io.open:  # else the program has replaced it
            replacements.append((builtins, "open", in_python))
        replacements.append((io, "open", in_python))
        for module, attribute, replacement in replacements:
            patch = Patch(module, attribute, False, getattr(module, attribute), replacement)
            setattr(module, attribute, replacement)
            stack.callback(patch.undo)
        self._is_installed = True
        stack.callback(setattr, self, "_is_installed", False)

    def opened(self, file: object, frame: FrameType | None) -> None:
        """Count a file at the line of the program at or above a frame; None: nothing of Python opened it.

        An object that is no name, such as a number of an open file, does not count.
        """
        if not self._is_installed or not isinstance(file, (str, bytes, os.PathLike)):
            return
        path = os.fsdecode(file)
        recorder = STATE.recorder
        if path.startswith(_NO_FILES) or (recorder and path.startswith(f"{recorder.directory.parent}{os.sep}")):
            return
        while frame is not None and not self._counter.is_user_file(frame.f_code.co_filename):
            if f"{frame.f_globals.get('__name__')}.".startswith(_COMPILERS):
                return
            frame = frame.f_back
        site = -1 if frame is None else self._counter.site_number(frame)
        self._counter.add_call(self._number, site)

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function that opens a file for writing, for the caller of the caller. It may call others: `open`
        calls what the program gives as its opener."""
        if self._thread.is_inside:
            return function(*args, **kwargs)
        self._thread.is_inside = True
        try:
            result = function(*args, **kwargs)
        finally:
            self._thread.is_inside = False
        self.opened(args[0] if args else kwargs.get("file", kwargs.get("path")), caller(2))
        return result


class _Thread(threading.local):
    is_inside = False


class _Open:
    """Stands for a function that opens files. It is no function of Python, as these become methods of classes that have
    them as attributes."""

    def __init__(
        self,
        original: Callable[..., Any],
        is_writing: Callable[[tuple[Any, ...], dict[str, Any]], bool],
        counter: FileCounter,
    ) -> None:
        self._original, self._is_writing, self._counter = original, is_writing, counter
        self.__name__ = self.__qualname__ = original.__name__
        self.__doc__, self.__wrapped__ = original.__doc__, original
        self.__module__ = "io" if original is io.open else "os"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._is_writing(args, kwargs):
            return self._counter.call(self._original, args, kwargs)
        return self._original(*args, **kwargs)

    def __reduce__(self) -> str:
        return self.__name__  # pickled by its name, as a function is


def _writes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether `open` opens a file for writing. It refuses itself what is no mode."""
    mode = args[1] if len(args) > 1 else kwargs.get("mode")
    return isinstance(mode, str) and any(letter in mode for letter in "wax+")


def _writes_low(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """The same for `os.open`."""
    flags: Any = args[1] if len(args) > 1 else kwargs.get("flags")
    return hasattr(flags, "__index__") and bool(index(flags) & _WRITES)
