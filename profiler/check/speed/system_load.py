"""What else the machine does during a round: load, time stolen by other virtual machines, throttled clocks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from profiler.check.model import Conditions
from profiler.core.procfs import PROC, Folder, cpu_times, runnable_threads
from profiler.record.limits import cores

_THROTTLE_COUNTS: Final = "devices/system/cpu/cpu*/thermal_throttle/core_throttle_count"


class SystemLoad:
    """Samples the state of the machine from its creation on.

    :param gpus: returns what throttles the GPUs' clocks; None: there are none.
    :param proc: in place of /proc.
    """

    def __init__(self, gpus: Callable[[], tuple[str, ...]] | None = None, proc: Folder = PROC) -> None:
        self._gpus = gpus
        self._proc = proc
        self._begin = cpu_times(proc)
        self._throttle_count = _throttle_count()
        self._runnable: list[int] = []
        self._throttled: dict[str, None] = {}

    def sample(self) -> None:
        """Take a sample, at least once a round; takes some 50 µs, with GPUs more."""
        runnable = runnable_threads(self._proc)
        if runnable is not None:
            self._runnable.append(runnable - 1)  # the thread that reads it is runnable itself
        if self._gpus is not None:
            self._throttled.update(dict.fromkeys(self._gpus()))

    def conditions(self) -> Conditions:
        """Conditions since the creation."""
        begin, end = self._begin, cpu_times(self._proc)
        steal = None
        if begin is not None and end is not None and end.total > begin.total:
            steal = max(0, end.stolen - begin.stolen) / (end.total - begin.total)
        count = _throttle_count()
        if count is not None and self._throttle_count is not None and count > self._throttle_count:
            self._throttled["CPU: thermal"] = None
        load = sum(self._runnable) / len(self._runnable) if self._runnable else None
        return Conditions(load, steal, tuple(self._throttled), cores())


def _throttle_count(root: Path = Path("/sys")) -> int | None:
    counts = []
    for file in root.glob(_THROTTLE_COUNTS):
        with suppress(OSError, ValueError):
            counts.append(int(file.read_text(encoding="ascii")))
    return sum(counts) if counts else None
