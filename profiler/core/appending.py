"""Lines that are appended to a file durably: whole or not at all, and never glued to what a killed writer left."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from profiler.core.errors import ProfilerError

_BEGIN: Final = 4096
"""Bytes by which a file is known."""


def append_line(path: Path, line: str, *, what: str, known: Callable[[bytes], bool]) -> None:
    """Append one line to `path`, made where it is not there, and have it on the disk before this returns.

    It is one write at the end. A line that a killed writer left unfinished is closed first, and stays as it is. Where
    the disk is full, the file has its old length again.

    :param what: the file is, for the error.
    :param known: whether a file that begins so is of that kind; another's is left alone.
    :raises ProfilerError: it cannot be written, or is another's.
    """
    if "\n" in line:
        raise ValueError("one line is appended at a time")
    try:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except OSError as error:
        raise ProfilerError(f"cannot append to the {what} {path}: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ProfilerError(f"cannot append to the {what} {path}: it is no plain file")
        with suppress(OSError):  # a file system without locks: one write at the end is whole there too
            fcntl.flock(file, fcntl.LOCK_EX)
        _append(file, path, line, what=what, known=known)
    finally:
        os.close(file)


def _append(file: int, path: Path, line: str, *, what: str, known: Callable[[bytes], bool]) -> None:
    size = os.fstat(file).st_size
    if size and not known(os.pread(file, _BEGIN, 0)):
        raise ProfilerError(f"{path} is no {what}: it is left as it is; name another file")
    unfinished = size > 0 and os.pread(file, 1, size - 1) != b"\n"
    data = (b"\n" if unfinished else b"") + line.encode("utf-8") + b"\n"
    try:
        written = os.write(file, data)
        if written < len(data):
            raise OSError(0, f"only {written:,} of {len(data):,} bytes could be written")
        os.fsync(file)
        if size == 0:
            _keep_name(path)
    except BaseException as error:
        os.ftruncate(file, size)
        if isinstance(error, OSError):
            raise ProfilerError(f"cannot append to the {what} {path}: {error.strerror}; it is as it was") from error
        raise


def _keep_name(path: Path) -> None:
    """A new file is found after a crash only if its folder is on the disk as well."""
    folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some file systems cannot
            os.fsync(folder)
    finally:
        os.close(folder)
