"""A program with all its processes: stopped, continued and ended as one."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable
from typing import Final

from profiler.check.speed.table import ENDED, STILL, WAITING, Seen, everyone, lives, look, thread_states
from profiler.check.speed.watchdog import Guard
from profiler.core.errors import ProfilerError
from profiler.core.procfs import process_tree, read_arguments

_PR_SET_PDEATHSIG: Final = 1
"""prctl(2): the signal that the kernel sends us when our parent dies."""
_prctl: Final = ctypes.CDLL(None).prctl
"""Looked up here: between fork and exec only what takes no lock may run."""
_PATIENCE_S: Final = 10.0
_SPINS: Final = 5
"""Looks at a process that was told to stop, one after the other: it mostly takes less than the shortest sleep."""
_SLEEP_S: Final = 0.0002
_VFORK_S: Final = 0.05
"""So long a process that waits in the kernel may wait for a disk; then a child that stands still is the cause."""


def die_with_parent() -> None:
    """For a child between fork and exec: the end of the gate, however it comes, ends what it has started."""
    _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)


class Tree:
    """The processes below `root`, and those of their sessions that have lost their parents.

    PIDs are given again: each process is remembered with its start, and one that is not the same gets no signal. Those
    that belong to another user (a setuid program) are left alone.

    :param root: a process with a session of its own.
    :param guard: is told of each process, for the case that the gate is killed.
    """

    def __init__(self, root: int, guard: Guard | None = None) -> None:
        self.root = root
        self._guard = guard
        self._known: dict[int, int] = {}
        """Starts of the members by PID, as they were seen last."""
        self._leaders: dict[int, int] = {}
        """Starts of those that lead a session, by its number."""
        self._strays: list[int] = []
        self._stopped: dict[int, int] = {}
        seen = look(root)
        if seen is not None:
            self._note(root, seen)

    def look_for_strays(self) -> None:
        """Find the processes of the sessions that are not below the root any more; some ms, so once a round."""
        table = everyone()
        for number in [n for n, start in self._leaders.items() if n in table and table[n].start != start]:
            del self._leaders[number]  # given again: a session keeps its number as long as anyone is in it
        below = _below(table, [self.root] if self._is_same(self.root, table.get(self.root)) else [])
        mine = _below(
            table,
            (pid for pid, seen in table.items() if seen.session in self._leaders or self._is_same(pid, seen)),
        )
        for pid in below | mine:
            self._note(pid, table[pid])
        self._strays = [pid for pid in mine - below if table[pid].parent not in mine and table[pid].state not in ENDED]

    def members(self) -> list[int]:
        """All that live, the root first."""
        found: dict[int, None] = {}
        for top in (self.root, *self._strays):
            if top not in found and self._is_same(top, look(top)):
                found.update(dict.fromkeys(process_tree(top)))
        return list(found)

    def has(self, pid: int) -> bool:
        """Whether `pid` is the root, below it, or of its sessions, so that `freeze` stops it; some ms if it is not."""
        if pid in self.members():
            return True
        self.look_for_strays()
        return pid in self.members()

    def freeze(self) -> None:
        """Stop all of them. When it returns none of them runs.

        :raises ProfilerError: one goes on running.
        """
        until = time.monotonic() + _PATIENCE_S
        told: set[int] = set()
        while fresh := [pid for pid in self.members() if pid not in told] or self._lost(told):
            if time.monotonic() > until:
                raise ProfilerError(
                    "the program starts processes faster than they can be stopped: it cannot take turns"
                )
            told.update(fresh)
            for pid in [pid for pid in fresh if self._stop(pid)]:
                self._wait(pid, until)

    def thaw(self) -> None:
        """Have all that `freeze` stopped go on."""
        for pid, start in self._stopped.items():
            if lives(pid, start):
                _send(pid, signal.SIGCONT)
        self._stopped.clear()

    def kill(self) -> None:
        """End all of them. When it returns none of them lives, but for the root, whose parent has to wait for it."""
        until = time.monotonic() + _PATIENCE_S
        refused: set[int] = set()
        while True:
            self.look_for_strays()
            seen = {pid: look(pid) for pid in self.members() if pid not in refused}
            living = {pid: one.start for pid, one in seen.items() if one is not None and one.state not in ENDED}
            if not living or time.monotonic() > until:
                return
            refused.update([pid for pid in living if not _send(pid, signal.SIGKILL)])
            for pid, start in living.items():
                while pid not in refused and lives(pid, start) and time.monotonic() < until:
                    time.sleep(0.001)

    def _is_same(self, pid: int, seen: Seen | None) -> bool:
        return seen is not None and self._known.get(pid) == seen.start

    def _note(self, pid: int, seen: Seen) -> None:
        if self._known.get(pid) == seen.start:
            return
        self._known[pid] = seen.start
        if seen.session == pid:
            self._leaders[pid] = seen.start
        if self._guard is not None:
            self._guard.watch(pid, seen)

    def _lost(self, found: set[int]) -> list[int]:
        """Known processes that live and were not found: they have lost their parents just now. Others are forgotten."""
        lost = []
        for pid in [pid for pid in self._known if pid not in found]:
            if lives(pid, self._known[pid]):
                lost.append(pid)
            elif pid != self.root:
                del self._known[pid]
        self._strays = [pid for pid in self._strays if pid in self._known] + lost
        return lost

    def _stop(self, pid: int) -> bool:
        """Whether it was told."""
        if pid not in self._known:  # before it is stopped: the guard may have to end it
            seen = look(pid)
            if seen is None:
                return False
            self._note(pid, seen)
        if not _send(pid, signal.SIGSTOP):
            return False
        self._stopped[pid] = self._known[pid]
        return True

    def _wait(self, pid: int, until: float) -> None:
        """Until `pid` stands still or is gone."""
        looks, begin = 0, 0.0
        while (seen := look(pid)) is not None:
            if seen.start != self._stopped[pid]:  # the PID of one that was known, given again below the root
                self._note(pid, seen)
                self._stopped[pid] = seen.start
            if seen.state in STILL:
                return
            looks += 1
            if looks <= _SPINS:
                os.sched_yield()
                continue
            now = time.monotonic()
            begin = begin or now
            if seen.state == WAITING and now - begin > _VFORK_S and self._waits_for_child(pid):
                return
            if now > until:
                _must_not_run(pid)
                return
            time.sleep(_SLEEP_S)

    def _waits_for_child(self, pid: int) -> bool:
        """Whether a child stands still for which it may wait: one of vfork, that was stopped before its exec."""
        if thread_states(pid) - {*STILL, WAITING}:
            return False
        children = [look(child) for child in process_tree(pid)[1:] if child in self._stopped]
        return any(child is not None and child.state in STILL and child.parent == pid for child in children)


def _below(table: dict[int, Seen], tops: Iterable[int]) -> set[int]:
    """`tops` and the processes below them."""
    found = set(tops)
    while more := {pid for pid, seen in table.items() if seen.parent in found} - found:
        found |= more
    return found


def _send(pid: int, number: signal.Signals) -> bool:
    """Whether it could be sent."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _must_not_run(pid: int) -> None:
    """:raises ProfilerError: `pid` does more than to wait in the kernel, out of which it comes only to stop."""
    if thread_states(pid) - {*STILL, WAITING}:
        name = " ".join(read_arguments(pid))[:80] or "without a name"
        raise ProfilerError(
            f"process {pid} of the program ({name}) still runs {_PATIENCE_S:.0f} s after it was told to stop: "
            "the other side cannot be measured beside it; run fewer programs on this machine, or leave that process out"
        )
