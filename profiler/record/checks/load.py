"""Whether the machine is quiet now: what other programs compute is missing to the one that is measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from profiler.core.capability import NOT_KNOWN, PARTLY, YES, Answer
from profiler.record.checks import Place

_LOADAVG: Final = Path("/proc/loadavg")
_QUIET: Final = 0.25
"""Threads at work or waiting for a core, a core of the machine, below which a program is hardly disturbed."""


class LoadCheck:
    """Reads the kernel's mean of the last minute, which what the doctor itself does has hardly moved."""

    name = "load"
    title = "quiet machine"
    order = 41
    needed = False
    patience_s = 5.0

    def look(self, place: Place) -> Answer:
        try:
            load = float(_LOADAVG.read_text(encoding="ascii").split()[0])
        except (OSError, ValueError, IndexError):
            return Answer(NOT_KNOWN, f"{_LOADAVG} does not say")
        cores = os.cpu_count() or 1  # the load is the whole machine's, whatever this container may use
        words = f"load {load:.1f} on {cores} cores in the last minute"
        if load < _QUIET * cores:
            return Answer(YES, words)
        more = "more threads want a core than there are cores" if load > cores else "other programs are at work"
        return Answer(PARTLY, f"{words}: {more}, times will vary", "see which: top")


PLUGIN = LoadCheck()
