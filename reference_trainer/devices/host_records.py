"""Reports of the host device to the recorder: counters at every step, and records of calls and activities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from profiler import marks
from reference_trainer.devices import host_queue as queue
from reference_trainer.devices.host_worker import Worker
from reference_trainer.devices.protocol import Counts
from reference_trainer.devices.records import DeviceRecorder

_now = marks.now
_CALL_WORDS = queue.CALL_BYTES // 8
_DRAIN_AT = queue.LOG_RECORDS // 2  # well before a log is full: the commands in flight still add to it


class Recorder(DeviceRecorder):
    """Moves the counters and logs of the queue to the recorder of this process.

    :param words: the head of the queue's block as int64.
    :param worker: its CPU is the device's, not the host's.
    """

    def __init__(
        self, active: marks.Recorder, queue_words: np.ndarray, counts: Callable[[], Counts], worker: Worker
    ) -> None:
        super().__init__(active, counts)
        self._words = queue_words
        self._view = queue_words.data  # a memoryview: reads a word in a third of the time that NumPy takes
        self._worker = worker
        self._copied_ns = self._stalled_ns = self._delayed_ns = self._lacked_ns = 0
        if self.detailed:
            self._calls = np.zeros((queue.LOG_RECORDS, queue.CALL_BYTES), np.uint8)
            self._activities = np.zeros((queue.LOG_RECORDS, queue.ACTIVITY_BYTES), np.uint8)
            self._call_words = self._calls.reshape(-1).view(np.int64).data
            self._calls_read = 0
            queue_words[queue.ALLOCATE_NAME // 8] = self.names["allocate"]
            queue_words[queue.ACTIVITY_LOG // 8] = self._activities.ctypes.data
            queue_words[queue.CALL_LOG // 8] = self._calls.ctypes.data
        active.device_cpu = worker.cpu_ns

    def report(self) -> None:
        """Add to the step's counters what was counted since the last report, and drain the logs."""
        super().report()
        copied = int(self._words[queue.COPY_NS // 8])
        marks.count("device_copy_busy_ns", copied - self._copied_ns)
        self._copied_ns = copied
        stalled, delayed = (int(self._words[word // 8]) for word in (queue.STALLED_NS, queue.DELAYED_NS))
        marks.count("waits_stalled_ns", stalled - self._stalled_ns)
        marks.count("waits_delayed_ns", delayed - self._delayed_ns)
        self._stalled_ns, self._delayed_ns = stalled, delayed
        lacked = self._worker.lacked_ns
        marks.count("device_lacked_ns", lacked - self._lacked_ns)
        self._lacked_ns = lacked
        if self.detailed:
            self.drain()

    def ended(self) -> None:
        """Set the end of the last call to now, back in Python, 0.5 us after its compiled part ended.

        Drains before a log can overflow.
        """
        calls = self._view[queue.CALLS // 8]
        if calls - self._calls_read > _DRAIN_AT:
            with marks.region("recording"):
                self.drain()
        self._call_words[(calls - 1) % queue.LOG_RECORDS * _CALL_WORDS + 1] = _now()

    def drain(self) -> None:
        """Hand all records that are complete to the recorder."""
        queue_words = self._words
        calls, activities = int(queue_words[queue.CALLS // 8]), int(queue_words[queue.ACTIVITIES // 8])
        self._hand_over("calls", self._calls, self._calls_read, calls)
        self._calls_read = calls
        self._hand_over("activities", self._activities, int(queue_words[queue.ACTIVITIES_READ // 8]), activities)
        queue_words[queue.ACTIVITIES_READ // 8] = activities
        if queue_words[queue.ACTIVITIES_DROPPED // 8]:
            marks.gauge("activities_dropped", int(queue_words[queue.ACTIVITIES_DROPPED // 8]))

    def _hand_over(self, table: str, log: np.ndarray, read: int, written: int) -> None:
        first, last = read % queue.LOG_RECORDS, written % queue.LOG_RECORDS
        if read == written:
            return
        for part in (log[first:last],) if first < last else (log[first:], log[:last]):
            if len(part):  # the second is empty where the log ends with its last record
                self._active.append_records(table, part.data.cast("B"))
