"""Reads files within limits, and writes them completely or not at all."""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import json
import math
import os
import re
import stat
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from profiler.core.errors import ProfilerError
from profiler.core.units import size

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


# ---------------------------------------------------------------- reading within limits

MAX_SIZE: Final = 2_000_000_000
"""Bytes, unpacked, of the largest file that is read. A trace of 62 MB has 239,000 events: longer ones are rare."""
_MAX_DEPTH: Final = 32
"""Levels of a fact of unknown type. Deeper ones would end the functions that walk through facts."""
_INT64: Final = 1 << 63
_UNITS: Final = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_max_size = ContextVar("max_size", default=MAX_SIZE)


@contextmanager
def limited_to(most: int | None) -> Iterator[None]:
    """Read files of up to `most` bytes within the block; None: of as many as before."""
    token = _max_size.set(_max_size.get() if most is None else most)
    try:
        yield
    finally:
        _max_size.reset(token)


class MaxSize(argparse.Action):
    """Sets the most bytes of a file, by an option with a number and a unit, until the command ends."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any) -> None:
        match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?) ?(|B|kB|MB|GB|TB)", str(values), re.IGNORECASE)
        if match is None:
            parser.error(f"argument {self.option_strings[0]}: {values!r} is no size such as 500MB or 20GB")
        _max_size.set(int(float(match[1]) * _UNITS[match[2].upper()]))
        setattr(namespace, self.dest, values)


def check_size(path: Path, number: int, what: str = "has") -> None:
    """Refuse a file with more bytes than may be read.

    :param what: what the file does with them: `has`, or `unpacks to`.
    :raises ProfilerError: `path` is too large.
    """
    if number > (most := _max_size.get()):
        raise ProfilerError(
            f"{path} {what} more than {size(most)}: read larger files with --max-size 20GB, in `check` with --set "
            "max_size=20GB"
        )


def open_file(path: Path) -> IO[bytes]:
    """Open a regular file for reading.

    :raises FileNotFoundError: there is none.
    :raises ProfilerError: it cannot be opened, is no regular file, or is too large.
    """
    try:
        # a FIFO without a writer would block without O_NONBLOCK; it has no effect on regular files
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(*error.args) from error
    except OSError as error:
        raise ProfilerError(f"cannot read {path}: {error.strerror}") from error
    try:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ProfilerError(f"{path} is a pipe, a device or a socket, and only files are read: copy it into one")
        check_size(path, status.st_size)
    except ProfilerError:
        file.close()
        raise
    return file


def read_bytes(path: Path) -> bytes:
    """Return the content of a regular file.

    :raises FileNotFoundError: there is none.
    :raises ProfilerError: as `open_file`, or the reading fails.
    """
    with open_file(path) as file:
        try:
            return file.read()
        except (OSError, MemoryError) as error:
            raise ProfilerError(f"cannot read {path}: {getattr(error, 'strerror', '') or 'no memory'}") from error


def read_json(path: Path) -> Any:
    """Return the value of a JSON file.

    :raises FileNotFoundError: there is none.
    :raises ProfilerError: as `read_bytes`.
    :raises ValueError: it is no JSON, or nested too deeply.
    """
    return parse(read_bytes(path))


def parse(text: bytes) -> Any:
    """Parse JSON.

    :raises ValueError: it is no JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


# ---------------------------------------------------------------- types


@cache
def declared(kind: Any) -> Mapping[str, Any]:
    """Name -> type of the fields of a TypedDict or a dataclass."""
    return get_type_hints(kind, include_extras=True)


def fits(value: object, kind: Any) -> bool:
    """Tell whether a JSON value has the type `kind`.

    :param kind: a plain type, `list[X]`, `tuple[X, ...]`, `dict[str, X]`, a union, a Literal, a TypedDict, a dataclass,
        or Annotated with the least number, a range, or the pattern of a text.
    """
    if kind is Any:
        return not is_deep(value)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64
    if kind is float:
        return fits(value, int) or (isinstance(value, float) and math.isfinite(value))
    if origin := get_origin(kind):
        return _fits_generic(value, origin, get_args(kind))
    if is_typeddict(kind) or dataclasses.is_dataclass(kind):
        return isinstance(value, Mapping) and _has_fields(value, kind)
    return isinstance(value, kind)


def _fits_generic(value: Any, origin: Any, arguments: tuple[Any, ...]) -> bool:
    if origin is Annotated:
        kind, limit = arguments
        if not fits(value, kind):
            return False
        if isinstance(limit, range):
            return value in limit
        return bool(re.fullmatch(limit, value) if isinstance(limit, str) else value >= limit)
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in arguments)
    if origin is Literal:
        return value in arguments
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(fits(each, arguments[1]) for each in value.values())
    if not isinstance(value, list | tuple):
        return False
    if origin is tuple and arguments[-1] is not Ellipsis:
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    return all(fits(each, arguments[0]) for each in value)


def _has_fields(value: Mapping[str, Any], kind: Any) -> bool:
    fields = declared(kind)
    if is_typeddict(kind):
        required = kind.__required_keys__
    else:
        nothing = dataclasses.MISSING
        rows = dataclasses.fields(kind)
        required = {row.name for row in rows if row.default is nothing and row.default_factory is nothing}
    return required <= value.keys() and all(fits(value[name], fields[name]) for name in value.keys() & fields.keys())


def is_deep(value: object, levels: int = _MAX_DEPTH) -> bool:
    """Tell whether a JSON value is nested more deeply than `levels`."""
    if not isinstance(value, dict | list | tuple):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(is_deep(each, levels - 1) for each in inner)


def fitting(content: Mapping[str, Any], kind: Any) -> tuple[dict[str, Any], list[str]]:
    """Split `content` into the entries that fit the fields of `kind` and the names of the others.

    An entry that `kind` does not declare fits unless it is nested deeply.
    """
    fields = declared(kind)
    kept = {name: value for name, value in content.items() if fits(value, fields.get(name, Any))}
    return kept, [name for name in content if name not in kept]
