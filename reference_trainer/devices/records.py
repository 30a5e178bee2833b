"""Reports the counters of a device to the recorder at each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from profiler import marks
from reference_trainer.devices.protocol import Counts

COUNTED: Final = ("syncs", "h2d", "d2h", "h2d_bytes", "d2h_bytes", "launches", "allocations", "crossings")
"""Fields of Counts that become counters of a step, under the same names."""


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
