"""Lets a sampler take its samples at the moment it chooses, by preempting the thread that it samples.

On a machine whose cores are all busy a sampler of ordinary priority gets its turn when a thread gives one up: that is,
when it waits. And a sampler that displaces another thread (the one that the sampled thread waits for, say) finds the
sampled one waiting. Of a loop that waited 60% of its time, py-spy saw 75 to 100% waiting on two busy cores. With
real-time priority and on the core of the sampled thread it stands exactly where that thread was: 52 to 60% seen, and
the thread need not be stopped besides. Needs root or CAP_SYS_NICE. (docs/log.md has the trials.)
"""

from __future__ import annotations

import os

from profiler.core.procfs import read_stat, thread_ids

_FOLLOW_S = (0.01, 0.02)  # a thread that moves some times a second leaves 6% of samples behind a look at 20 Hz
_PRIORITY = 1  # the lowest of the real-time ones


def permitted() -> bool:
    """Whether this process may give its children real-time priority."""
    try:
        policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
        os.sched_setscheduler(0, policy, parameters)
    except (OSError, AttributeError):
        return False
    return True


class Seat:
    """Keeps all threads of the process `sampler` ahead of the main thread of `pid`, on the core where that runs."""

    def __init__(self, sampler: int, pid: int) -> None:
        self._sampler = sampler
        self._pid = pid
        self._core: int | None = None
        self._threads: list[int] = []
        self.pause_s = _FOLLOW_S[0]
        """Until the next look: longer while the main thread stays where it is, since each costs 0.1 ms of a core."""
        self.refused = False
        """True: a move was not allowed (a cpuset, say), and samples lean toward waiting after all."""

    def take(self) -> None:
        """Look where the main thread is now, and move there."""
        stat = read_stat(self._pid)
        if stat is None:
            return
        core = stat.core
        threads = thread_ids(self._sampler)
        if core == self._core and threads == self._threads:
            self.pause_s = min(_FOLLOW_S[1], 2 * self.pause_s)
            return
        fresh = threads if core != self._core else [tid for tid in threads if tid not in self._threads]
        self._core, self._threads, self.pause_s = core, threads, _FOLLOW_S[0]
        for tid in fresh:
            try:
                os.sched_setaffinity(tid, {core})
                os.sched_setscheduler(tid, os.SCHED_RR, os.sched_param(_PRIORITY))
            except ProcessLookupError:  # it ended meanwhile
                continue
            except OSError:
                self.refused = True

    def leave(self) -> None:
        """Any core again, and no place before others: what it does now it need not do on the target's core."""
        for tid in thread_ids(self._sampler) if self._threads else ():
            try:
                os.sched_setscheduler(tid, os.SCHED_OTHER, os.sched_param(0))
                os.sched_setaffinity(tid, os.sched_getaffinity(0))
            except OSError:  # it ended meanwhile
                continue
        self._core, self._threads = None, []
