"""Whether times can be trusted: cores that the machine does not give, and clocks that change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from profiler.core.capability import PARTLY, YES, Answer
from profiler.core.procfs import cpu_times
from profiler.core.units import share
from profiler.record import limits
from profiler.record.checks import Place

_GOVERNOR: Final = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_STOLEN: Final = 0.01
"""Share of CPU time since boot from which other virtual machines disturb."""


class ClocksCheck:
    """Reads what the kernel says; nothing is timed."""

    name = "clocks"
    title = "steady times"
    order = 40
    needed = False
    patience_s = 5.0

    def look(self, place: Place) -> Answer:
        seen, limit, stolen, governor = limits.cores(), limits.cpu_limit(), _stolen(), _governor()
        doubts, cures = [], []
        if limit is not None and limit < seen:
            doubts.append(f"the container may use {limit:g} of the {seen} cores that programs see: they are throttled")
            cures.append(f"export OMP_NUM_THREADS={max(1, int(limit))}")
        if stolen > _STOLEN:
            doubts.append(f"other virtual machines took {share(stolen)} of the CPU time since boot")
        if governor in {"powersave", "ondemand", "conservative", "schedutil"}:
            doubts.append(f"the CPU changes its frequency (governor {governor})")
            cures.append("sudo cpupower frequency-set -g performance")
        if doubts:
            return Answer(PARTLY, "; ".join(doubts), cures[0] if cures else "")
        known = f"governor {governor}" if governor else "the governor is not shown"
        return Answer(YES, f"{seen} cores, none limited; stolen {share(stolen)} since boot; {known}")


def _stolen() -> float:
    """Share of all CPU time since boot."""
    times = cpu_times()
    return times.stolen / times.total if times and times.total else 0.0


def _governor() -> str:
    return _GOVERNOR.read_text(encoding="ascii").strip() if os.access(_GOVERNOR, os.R_OK) else ""


PLUGIN = ClocksCheck()
