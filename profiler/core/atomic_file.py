"""Replaces and appends to files so that no crash, full disk or second writer leaves half of one. Standard library only.

A file is replaced by writing a new one beside it and renaming that: readers see the old or the new content. A locked
file is also on the disk afterwards, so that it survives a power failure.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from profiler.core.errors import ProfilerError

_HEAD_BYTES: Final = 4096
"""The first bytes of a file, by which its kind is recognised before a line is appended."""


def write_text(path: Path, text: str) -> None:
    """Replace `path` with `text` in UTF-8.

    :raises OSError: `path` is as it was.
    """
    with replacement(path) as file:
        file.write(text.encode())


@contextmanager
def replacement(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` when the block ends without an error. An existing file keeps its mode.

    :raises OSError: `path` is as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            _keep_mode(descriptor, path)
            os.replace(temporary, path)  # noqa: PTH105
    except BaseException:  # Ctrl-C too
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108 - as every change of the disk here a function of os: a test counts them
        raise


class LockedFile:
    """A file that no other `locked` block changes meanwhile."""

    def __init__(self, path: Path, lock: Path) -> None:
        self.path = path
        """The file itself, where a symbolic link was named."""
        self._lock = lock

    def replace(self, text: str) -> None:
        """Replace the file with `text`, on the disk when this returns.

        :raises OSError: the old file is as it was.
        """
        data = memoryview(text.encode())
        descriptor = os.open(self._lock, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.ftruncate(descriptor, 0)
            while data:
                data = data[os.write(descriptor, data) :]
            _keep_mode(descriptor, self.path)
            os.fsync(descriptor)
            os.replace(self._lock, self.path)  # noqa: PTH105
            _sync_folder(self.path.parent)
        finally:
            os.close(descriptor)


@contextmanager
def locked(path: Path, what: str) -> Iterator[LockedFile]:
    """Keep other updates of `path` out while it is read, changed and replaced.

    The lock is also the file that becomes the new one: what a killed update left is used by the next one.

    :param what: the kind of the file, for the error.
    :raises ProfilerError: nothing can be written there; an OSError of the block too is raised as one.
    """
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.new")
    try:
        lock = _lock(beside)
    except OSError as error:
        raise ProfilerError(f"cannot write the {what} {path}: {error.strerror} ({beside})") from error
    try:
        yield LockedFile(target, beside)
    except OSError as error:
        raise ProfilerError(f"cannot write the {what} {path}: {error.strerror}; it is as it was") from error
    finally:
        if _is_open_as(beside, lock):
            with suppress(OSError):
                os.unlink(beside)  # noqa: PTH108
        fcntl.flock(lock, fcntl.LOCK_UN)  # a child that was forked meanwhile has the descriptor too
        os.close(lock)


def append_line(path: Path, line: str, *, what: str, is_ours: Callable[[bytes], bool]) -> None:
    """Append one line to `path`, which is made where it does not exist; it is on the disk when this returns.

    It is a single write at the end. An unfinished line of a killed writer is closed first and stays as it is. When the
    disk is full, the file gets its old length again.

    :param what: the kind of the file, for the error.
    :param is_ours: whether a file that begins so is of that kind; others are left alone.
    :raises ProfilerError: it cannot be written, or is of another kind.
    """
    if "\n" in line:
        raise ValueError("one line is appended at a time")
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        file = os.open(path, flags, 0o666)
    except OSError as error:
        raise ProfilerError(f"cannot append to the {what} {path}: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ProfilerError(f"cannot append to the {what} {path}: it is no plain file")
        with suppress(OSError):  # on a file system without locks a single write at the end is atomic too
            fcntl.flock(file, fcntl.LOCK_EX)
        size = os.fstat(file).st_size
        if size and not is_ours(os.pread(file, _HEAD_BYTES, 0)):
            raise ProfilerError(f"{path} is no {what}: it is left as it is; name another file")
        unfinished = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        try:
            data = b"\n" * unfinished + line.encode() + b"\n"
            if (written := os.write(file, data)) < len(data):
                raise OSError(0, f"only {written:,} of {len(data):,} bytes could be written")
            os.fsync(file)
            if size == 0:
                _sync_folder(path.resolve().parent)
        except BaseException as error:
            os.ftruncate(file, size)
            if isinstance(error, OSError):
                raise ProfilerError(f"cannot append to the {what} {path}: {error.strerror}; it is as it was") from error
            raise
    finally:
        os.close(file)


def _keep_mode(descriptor: int, path: Path) -> None:
    """Give a new file the mode of the one that it replaces."""
    with suppress(FileNotFoundError):
        os.fchmod(descriptor, path.stat().st_mode & 0o777)


def _sync_folder(folder: Path) -> None:
    """A new name survives a power failure only if its folder is on the disk as well; some file systems cannot sync."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(path: Path) -> int:
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            os.close(lock)
            raise
        if _is_open_as(path, lock):
            return lock
        os.close(lock)  # its holder has renamed it to the file: `path` is another one now


def _is_open_as(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))  # noqa: PTH116
    except OSError:
        return False
