"""The kernel's table of processes, as far as it tells whose a process is and whether it runs."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

STILL: Final = ("T", "t", "Z", "X")
"""States of proc(5) in which a process does not go on by itself: stopped, traced, ended."""
ENDED: Final = ("Z", "X")
WAITING: Final = "D"
"""Waits in the kernel where no signal but SIGKILL reaches it: for a disk, or for the child of a vfork."""


class Seen(NamedTuple):
    """A process at one moment."""

    state: str
    """Of its first thread."""
    parent: int
    session: int
    start: int
    """When it started (clock ticks since boot). A PID is given again, a PID with its start is not."""


def look(pid: int) -> Seen | None:
    """What the kernel says of `pid`, some 10 µs; None when it is gone."""
    return _read(f"/proc/{pid}/stat")


def everyone() -> dict[int, Seen]:
    """All processes by PID; some ms."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - a Path each costs thrice this
    return {pid: seen for pid in pids if (seen := look(pid)) is not None}


def lives(pid: int, start: int) -> bool:
    """Whether `pid` is still the process that started then, and has not ended."""
    seen = look(pid)
    return seen is not None and seen.start == start and seen.state not in ENDED


def thread_states(pid: int) -> set[str]:
    """States of all threads of `pid`; empty when it is gone."""
    try:
        tids = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return set()
    return {seen.state for tid in tids if (seen := _read(f"/proc/{pid}/task/{tid}/stat")) is not None}


def _read(path: str) -> Seen | None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        data = os.read(descriptor, 4096)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    fields = data[data.rfind(b")") + 1 :].split(None, 20)  # a name may have blanks and brackets
    return Seen(chr(fields[0][0]), int(fields[1]), int(fields[3]), int(fields[19]))
