"""A file that is replaced whole or not at all, by one process at a time: what was there stays whatever happens."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from profiler.core.errors import ProfilerError


@contextmanager
def held(path: Path, what: str) -> Iterator[Path]:
    """Keep other updates of this file out; gives the file itself, where `path` is a symbolic link.

    What is written beside it has one name and is a lock too: what an update that was killed left is used by the next.

    :param what: it is, for the error.
    :raises ProfilerError: nothing can be written there.
    """
    place = Path(os.path.realpath(path))
    beside = _beside(place)
    try:
        lock = _locked(beside)
    except OSError as error:
        raise ProfilerError(f"cannot write the {what} {path}: {error.strerror} ({beside})") from error
    try:
        yield place
    except OSError as error:
        raise ProfilerError(f"cannot write the {what} {path}: {error.strerror}; it is as it was") from error
    finally:
        if _is(beside, lock):
            with suppress(OSError):
                beside.unlink()
        fcntl.flock(lock, fcntl.LOCK_UN)  # a child that was forked meanwhile has it too
        os.close(lock)


def _beside(place: Path) -> Path:
    return place.with_name(f".{place.name}.new")


def _locked(beside: Path) -> int:
    while True:
        lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            os.close(lock)
            raise
        if _is(beside, lock):
            return lock
        os.close(lock)  # who held it has put it in its place: what is beside now is another


def _is(beside: Path, lock: int) -> bool:
    try:
        there = os.stat(beside, follow_symlinks=False)  # noqa: PTH116
    except OSError:
        return False
    ours = os.fstat(lock)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def replace(place: Path, text: str) -> None:
    """Write the file, within `held`: beside it, to the disk, then in its place.

    :raises OSError: the old file is as it was.
    """
    data, beside = memoryview(text.encode("utf-8")), _beside(place)
    file = os.open(beside, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.ftruncate(file, 0)
        while data:
            data = data[os.write(file, data) :]
        with suppress(FileNotFoundError):
            os.fchmod(file, place.stat().st_mode & 0o777)
        os.fsync(file)
        os.replace(beside, place)  # noqa: PTH105
    finally:
        os.close(file)
    with suppress(OSError):  # not every file system has it; the file is there by now
        _sync_folder(place.parent)


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
