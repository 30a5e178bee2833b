"""The host device's worker: the thread that runs the commands of a queue, and how its time divides."""

from __future__ import annotations

import threading
import time

import numpy as np

from profiler.marks import now
from reference_trainer.devices import host_queue as queue


def _work(words: np.ndarray) -> None:
    """Run the commands of the queue. The thread keeps the queue's memory, also of a device that nobody closes."""
    queue.work(words.ctypes.data)


class Worker:
    """Runs the commands of a queue in a thread.

    The kernel counts the thread's CPU time, and the queue counts how long the thread was off its core between commands.
    What remains of the time off its core was taken from commands: the thread had no core, so the device was not busy.
    A command pays for nothing but the two readings of the clock that time it; `busy_ns` takes about 3 us.

    :param words: the head of the queue's block as int64.
    """

    def __init__(self, words: np.ndarray) -> None:
        self._words = words
        self._view = words.data  # a memoryview: reads a word in a third of the time that NumPy takes
        self._thread = threading.Thread(target=_work, args=(words,), name="host-device", daemon=True)
        self._thread.start()
        assert self._thread.ident is not None, "the thread was started"
        self._clock = time.pthread_getcpuclockid(self._thread.ident)
        self._cpu = self._busy = 0
        self.lacked_ns = 0
        """Time so far in which the thread could have run and had no core, at the last reading of `busy_ns`."""
        while not self._word(queue.SEEN_NS):
            time.sleep(0)  # the thread has not begun to poll
        self._start = now() - self.cpu_ns()

    def cpu_ns(self) -> int:
        """CPU time of the thread; when it has ended, that of the last reading."""
        if self._thread.is_alive():
            self._cpu = time.clock_gettime_ns(self._clock)
        return self._cpu

    def busy_ns(self) -> int:
        """Time so far in which the thread ran commands and had a core; when it has ended, that of the last reading.

        It never decreases: if a command is interrupted at this moment, its lost time is known before its time is.
        """
        if self._thread.is_alive():
            between, seen = self._word(queue.LACKED_NS) + self._word(queue.SLEPT_NS), self._word(queue.SEEN_NS)
            moment = now()
            if seen and moment - seen > queue.LACKED_FROM_NS:
                between += moment - seen  # it sleeps or has no core at this moment
            lost = max(0, moment - self.cpu_ns() - self._start - between)
            self._busy = max(self._busy, self._word(queue.BUSY_NS) - lost)
            self.lacked_ns = max(self.lacked_ns, self._word(queue.LACKED_NS) + lost)
        return self._busy

    def _word(self, offset: int) -> int:
        return int(self._view[offset // 8])

    def stop(self) -> None:
        """Run what is in the queue, and end the thread."""
        if self._thread.is_alive():
            queue.settle(self._words.ctypes.data, self._word(queue.HEAD))
            self.busy_ns()  # the last reading, which contains all commands
            queue.stop(self._words.ctypes.data)
            self._thread.join()
