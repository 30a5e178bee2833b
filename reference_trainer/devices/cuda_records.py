"""Reports of the CUDA device to the recorder: counters at every step, and a record of each call.

Activities (what ran on the GPU, and when) are not recorded here: only CUPTI knows them, and torch's profiler
reads it at level `full`. So calls have no correlation, and a step has no `device_busy_ns`.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Final

from profiler import marks
from reference_trainer.devices.protocol import Counts
from reference_trainer.devices.records import DeviceRecorder

# Layout of profiler.run.tables.CALLS and values of its CallKind; a test holds them equal.
CALL: Final = struct.Struct("<qqqqqqiiii")
LAUNCH_CALL, H2D_CALL, D2H_CALL, ALLOC_CALL, SYNC_CALL = 0, 1, 2, 5, 7
_NO_CORRELATION: Final = 0
_STREAM: Final = 0


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
