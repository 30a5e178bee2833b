"""Whose a worktree is: a file in its folder, by which the next check knows whether its own has ended."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from profiler.check.worktree.location import host
from profiler.core.errors import ProfilerError
from profiler.core.procfs import is_alive

OWNER: Final = "owner"
"""Name of the file. It is locked too, where the file system can: the kernel lets go of it however a check ends."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The process of a check."""

    repository: str
    """Git's folder, which all worktrees of a repository have in common."""
    host: str
    namespace: str
    """Of process ids: a container has its own."""
    pid: int
    started: int
    """Clock ticks since the machine started: a process id is given again, with another start."""

    @classmethod
    def this(cls, repository: Path) -> Owner:
        """The one that is running now."""
        return cls(str(repository), host(), _namespace(), os.getpid(), _started(os.getpid()))

    def lives(self) -> bool:
        """Whether its process runs; asked on the same host."""
        return is_alive(self.pid) and _started(self.pid) == self.started


@contextmanager
def owned(folder: Path, repository: Path) -> Iterator[None]:
    """Within it `folder` is ours.

    :raises ProfilerError: it cannot be written.
    """
    text = json.dumps(asdict(Owner.this(repository))).encode()
    try:
        file = open(folder / OWNER, "xb", buffering=0)  # noqa: SIM115 - closed below
    except OSError as error:
        raise ProfilerError(f"cannot write to {folder}: {error.strerror}") from error
    with file:
        try:
            with suppress(OSError):  # some network file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(text)
        except OSError as error:
            raise ProfilerError(f"cannot write to {folder}: {error.strerror}") from error
        yield


def abandoned(folder: Path, repository: Path) -> bool:
    """Whether `folder` is of a check of this repository, user and host that has ended without removing it."""
    try:
        descriptor = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    with open(descriptor, "rb") as file:
        try:
            owner = Owner(**json.loads(file.read()))
        except (ValueError, TypeError, OSError):
            return False
        if (owner.repository, owner.host) != (str(repository), host()) or os.fstat(descriptor).st_uid != os.getuid():
            return False
        locked = _locked(descriptor)
        if owner.namespace != _namespace():  # its process id says nothing here
            return locked is False
        return not locked and not owner.lives()


def _locked(descriptor: int) -> bool | None:
    """Whether somebody holds the file; None: there are no locks here."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - no file: pid:[4026531836]
    except OSError:
        return ""


def _started(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0
