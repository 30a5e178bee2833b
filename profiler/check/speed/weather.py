"""What else the machine does during a round: load, time that other virtual machines take, clocks held down."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from profiler.check.model import Conditions
from profiler.record.limits import cores

_STAT: Final = Path("/proc/stat")
_LOADAVG: Final = Path("/proc/loadavg")
_THROTTLES: Final = "devices/system/cpu/cpu*/thermal_throttle/core_throttle_count"
_STEAL: Final = 7
"""Field of a cpu line of /proc/stat, proc(5)."""
_FIELDS: Final = 8
"""user to steal; guest time behind them is counted in user already."""


class Weather:
    """Looked at now and then from its making on; `conditions` says how it was since then.

    :param gpus: reads what holds the clocks of GPUs down; None: there are none.
    """

    def __init__(self, gpus: Callable[[], tuple[str, ...]] | None = None) -> None:
        self._gpus = gpus
        self._begin = _jiffies()
        self._throttles = _throttles()
        self._runnable: list[float] = []
        self._held: dict[str, None] = {}

    def look(self) -> None:
        """Once or more a round; some 50 us, with GPUs more."""
        with suppress(OSError, ValueError, IndexError):
            self._runnable.append(float(_LOADAVG.read_text(encoding="ascii").split()[3].partition("/")[0]) - 1)
        if self._gpus is not None:
            self._held.update(dict.fromkeys(self._gpus()))

    def conditions(self) -> Conditions:
        """Of the time since this was made. The load leaves out who reads it, which is running then."""
        after = _jiffies()
        steal = None
        if self._begin and after and (total := sum(after) - sum(self._begin)) > 0:
            steal = max(0, after[_STEAL] - self._begin[_STEAL]) / total
        if (now := _throttles()) is not None and self._throttles is not None and now > self._throttles:
            self._held["CPU: thermal"] = None
        load = sum(self._runnable) / len(self._runnable) if self._runnable else None
        return Conditions(load, steal, tuple(self._held), cores())


def _jiffies() -> list[int]:
    try:
        line = _STAT.read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return []
    return [int(value) for value in line[1 : _FIELDS + 1]] if len(line) > _FIELDS else []


def _throttles(root: Path = Path("/sys")) -> int | None:
    counts = []
    for file in root.glob(_THROTTLES):
        with suppress(OSError, ValueError):
            counts.append(int(file.read_text(encoding="ascii")))
    return sum(counts) if counts else None
