"""A program with all its processes: stopped, continued and ended as one."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from profiler.record.processes import family, is_alive

_PR_SET_PDEATHSIG: Final = 1
"""prctl(2): the signal that the kernel sends us when our parent dies."""
_prctl: Final = ctypes.CDLL(None).prctl
"""Looked up here: between fork and exec only what takes no lock may run."""
_LOOKS: Final = 5
"""Times that a tree is looked at for processes that came while it was being stopped."""
_PATIENCE_S: Final = 10.0
_STOPPED: Final = (b"T", b"t", b"Z", b"X")


def die_with_parent() -> None:
    """For a child between fork and exec: the end of the gate, however it comes, ends what it has started."""
    _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)


class Tree:
    """The processes below `root`, and those of its session that have lost their parents.

    :param root: a process with a session of its own.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self._strays: tuple[int, ...] = ()

    def look_for_strays(self) -> None:
        """Find the processes of the session that are not below the root any more; some ms, so once a round."""
        known = set(family(self.root))
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) not in known:
                with suppress(OSError, ValueError, IndexError):
                    if int((entry / "stat").read_bytes().rpartition(b")")[2].split()[3]) == self.root:
                        found.append(int(entry.name))
        self._strays = tuple(found)

    def members(self) -> list[int]:
        """All that live, the root first."""
        found = dict.fromkeys(family(self.root))
        for stray in self._strays:
            found.update(dict.fromkeys(family(stray)))
        return list(found)

    def freeze(self) -> None:
        """Stop all of them. When it returns none of them runs."""
        stopped: set[int] = set()
        for _ in range(_LOOKS):
            fresh = [pid for pid in self.members() if pid not in stopped]
            if not fresh:
                break
            for pid in fresh:
                _send(pid, signal.SIGSTOP)
            stopped.update(fresh)
        until = time.monotonic() + _PATIENCE_S
        for pid in stopped:
            while not _is_stopped(pid) and time.monotonic() < until:
                time.sleep(0.0002)

    def thaw(self) -> None:
        """Have all of them go on."""
        for pid in self.members():
            _send(pid, signal.SIGCONT)

    def kill(self) -> None:
        """End all of them. When it returns none of them lives, but for the root, whose parent has to wait for it."""
        self.look_for_strays()
        ended: set[int] = set()
        for _ in range(_LOOKS):
            living = [pid for pid in self.members() if pid not in ended]
            for pid in living:
                _send(pid, signal.SIGKILL)
            ended.update(living)
            if not living:
                break
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.root, signal.SIGKILL)
        until = time.monotonic() + _PATIENCE_S
        for pid in ended - {self.root}:
            while is_alive(pid) and time.monotonic() < until:
                time.sleep(0.001)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_stopped(pid: int) -> bool:
    """Whether all threads of `pid` stand still, or it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in _STOPPED
    except (OSError, IndexError):
        return True
