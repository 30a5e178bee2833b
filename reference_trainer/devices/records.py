"""Reports the counters of a device to the recorder at each step."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Final

from profiler import marks
from reference_trainer.devices.protocol import Counts

COUNTED: Final = ("syncs", "h2d", "d2h", "h2d_bytes", "d2h_bytes", "launches", "allocations", "crossings")
"""Fields of Counts that become counters of a step, under the same names."""
# Layout of profiler.run.tables.CALLS and values of its CallKind; a test holds them equal.
CALL: Final = struct.Struct("<qqqqqqiiii")
LAUNCH_CALL, H2D_CALL, D2H_CALL, ALLOC_CALL, SYNC_CALL = 0, 1, 2, 5, 7
_NO_CORRELATION: Final = 0
_STREAM: Final = 0


class DeviceRecorder:
    """Adds to each step what the device counted in it.

    :param counts: reads the device's counters.
    """

    def __init__(self, active: marks.Recorder, counts: Callable[[], Counts]) -> None:
        self._active = active
        self.site = active.site
        """Number of the line that a frame is at. A call takes the time first: finding the site is part of it."""
        self.names = active.names
        """Number of each name in the recorder's table."""
        self._counts = counts
        self._reported = counts()
        self.detailed = active.detailed
        active.on_step.append(self.report)

    def report(self) -> None:
        """Add to the step's counters what was counted since the last report."""
        counts, before = self._counts(), self._reported
        self._reported = counts
        for field in COUNTED:
            marks.count(field, getattr(counts, field) - getattr(before, field))
        if counts.busy_ns is not None and before.busy_ns is not None:
            marks.count("device_busy_ns", counts.busy_ns - before.busy_ns)


class CudaRecorder(DeviceRecorder):
    """Writes a record for every call into CUDA. Only the thread that made it may use it."""

    def __init__(self, active: marks.Recorder, counts: Callable[[], Counts]) -> None:
        super().__init__(active, counts)
        self._tid = threading.get_native_id()

    def call(self, kind: int, name: str, began: tuple[int, int], size: int = 0, blocked_from: int = 0) -> int:
        """Record a call that ends now; return that time.

        :param began: begin (ns) and site of the call.
        :param size: bytes that it moved or took.
        :param blocked_from: when the host began to wait for the device (ns); 0: it did not.
        """
        begin, site = began
        end = marks.now()
        blocked = max(end - blocked_from, 1) if blocked_from else 0  # where the clock is coarse, too
        number = self._active.names[name]
        self._active.append_records(
            "calls", CALL.pack(begin, end, blocked, size, _NO_CORRELATION, self._tid, kind, number, site, _STREAM)
        )
        return end
