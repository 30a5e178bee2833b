"""Reads the clocks of threads at boundaries of steps, and around some of the regions, which are defined here too."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol

from profiler.agent.folder import RecordBuffer
from profiler.run.tables import NOT_READ, RANDOM_END, next_random

now: Final = time.monotonic_ns
"""The clock of every record: CLOCK_MONOTONIC in ns, the same in all processes of a machine."""
# CPU clocks at boundaries are read at most this often, since each read is a system call of 1 to 3 µs
_CPU_NS: Final = 10_000_000
_ALWAYS_READ: Final = 100  # the first boundaries always read the CPU clocks, so that a short run has CPU times
_CLOCKED_NS: Final = 40_000_000
"""Mean time between two regions of a name with readings of the thread's clocks; the two readings take about 16 µs."""
_SMOOTHING: Final = 0.03
"""Weight of the last period of regions in their mean. With 0.1, regions that a CPU quota makes five times as long were
chosen 4% too rarely."""
_SCHEDULER: Final = "/proc/thread-self/schedstat"
"""CPU time, run delay and number of time slices of the thread that reads it. Opened anew for each reading (8 µs), so
that the program has no file more than without recording."""


class ThreadState(threading.local):
    """State of one thread: its id, cached because getting it is a system call, and the depth of its open regions."""

    def __init__(self) -> None:
        self.tid = threading.get_native_id()
        self.depth = 0
        self.clocked_depth = -1
        """The depth of the open region at whose begin the clocks were read; -1 where there is none."""


class ThreadClocks:
    """Reads the CPU time of threads and, where the kernel has it, how long they have waited for a core so far."""

    def __init__(self, thread: ThreadState, table: RecordBuffer) -> None:
        self._thread = thread
        self._append, self._pack = table.append, table.pack
        self._read_at = 0, 0
        """The thread that last read its CPU clock at a boundary, and the time of that reading."""
        self._always_read = _ALWAYS_READ
        self._has_delay = True
        """Whether the kernel tells how long a thread waited for a core."""
        self._clocked: dict[str, Clocked] = {}

    def is_due(self, when: int) -> bool:
        """Tell whether to read the clocks of this thread: at the first boundaries, then every 10 ms at most."""
        tid, (last_tid, last) = self._thread.tid, self._read_at
        if tid == last_tid and when - last <= _CPU_NS and not self._always_read:
            return False
        self._read_at = tid, when
        self._always_read = max(0, self._always_read - 1)
        return True

    def record(self, when: int, cpu: int) -> None:
        """Record this thread's clocks.

        :param cpu: its CPU time, or NOT_READ within a step: on a busy core the kernel takes the core away where a
            thread reads its CPU time, if its turn is over, instead of at its next tick.
        """
        if not self._has_delay:
            return
        try:
            descriptor = os.open(_SCHEDULER, os.O_RDONLY | os.O_CLOEXEC)
            try:
                used, delay, _ = map(int, os.read(descriptor, 96).split())
            finally:
                os.close(descriptor)
        except (OSError, ValueError):
            self._has_delay = False
            return
        self._has_delay = used > 0  # some kernels show zeros
        if self._has_delay:
            self._append(self._pack(when, cpu, delay, self._thread.tid))

    def begin(self, name: str, depth: int) -> int:
        """Return the time now, as the begin of a region at the depth `depth`. `Recorder.region` will record its end.

        For some regions of each name, about one in 40 ms, the time that the thread has waited for a core so far is read
        at their begin and at their end: that tells how much of such regions the thread waits for a core. Regions are
        chosen by their number: chosen by time, they would be those that run when a CPU quota is used up, or never.
        """
        begin, thread = now(), self._thread
        clocked = self._clocked.get(name)
        if clocked is None:
            clocked = self._clocked[name] = Clocked()
        clocked.until_next -= 1
        if clocked.until_next <= 0 and thread.clocked_depth < 0:
            clocked.choose_next(begin)
            thread.clocked_depth = depth
            self.record(begin, NOT_READ)
        return begin


class Clocked:
    """Chooses those regions of one name for which the thread's clocks are read."""

    __slots__ = ("_chosen_at", "_period", "_random", "_skipped", "_weight", "until_next")

    def __init__(self) -> None:
        self.until_next = 0
        self._skipped = 1
        self._chosen_at = 0
        self._period = float(_CLOCKED_NS)
        """ns from the begin of a region to the begin of the next one, smoothed."""
        self._weight = 1.0
        self._random = 1

    def choose_next(self, begin: int) -> None:
        """Choose the next region after the one that begins at `begin`."""
        if self._chosen_at:
            recent = (begin - self._chosen_at) / self._skipped
            self._period += self._weight * (recent - self._period)
            self._weight = max(_SMOOTHING, self._weight / (1 + self._weight))  # 1, 1/2, 1/3: at first the mean of all
        self._chosen_at = begin
        self._random = next_random(self._random)
        fraction = self._random / RANDOM_END
        self.until_next = self._skipped = 1 + int(2 * fraction * max(0.0, _CLOCKED_NS / self._period - 0.5))


class RegionRecorder(Protocol):
    """The part of `profiler.agent.recorder.Recorder` that regions use; that module imports this one."""

    thread: ThreadState

    @property
    def begin_clocked(self) -> Callable[[str, int], int]: ...

    def region(self, name: str, begin: int, depth: int) -> None: ...


class Region:
    """One open region: a context manager."""

    __slots__ = ("_begin", "_depth", "_name", "_recorder")

    def __init__(self, recorder: RegionRecorder, name: str) -> None:
        self._recorder = recorder
        self._name = name

    def __enter__(self) -> None:
        thread = self._recorder.thread
        self._depth = thread.depth
        thread.depth = self._depth + 1
        self._begin = now()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder.region(self._name, self._begin, self._depth)


class ClockedRegion(Region):
    """A region for which the thread's clocks are read now and then."""

    __slots__ = ()

    def __enter__(self) -> None:
        super().__enter__()
        self._begin = self._recorder.begin_clocked(self._name, self._depth)
