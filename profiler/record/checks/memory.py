"""How much memory there is, and whether a container allows less."""

from __future__ import annotations

import os
from typing import Final

from profiler.core.capability import PARTLY, YES, Answer
from profiler.core.units import size
from profiler.record import limits
from profiler.record.checks import Place

_RECORDER: Final = 1 << 30
"""Bytes for the recorder, the sampler and the report beside the program."""


class MemoryCheck:
    """Reads what the kernel and the control groups say."""

    name = "memory"
    title = "memory"
    order = 51
    needed = False
    patience_s = 5.0

    def look(self, place: Place) -> Answer:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = limits.memory_limit()
        allowed = min(machine, limit or machine)
        words = (
            f"{size(machine)}, no limit below it"
            if allowed == machine
            else (f"the container may use {size(allowed)} of the machine's {size(machine)}")
        )
        if allowed < _RECORDER:
            return Answer(PARTLY, f"{words}: little beside a program that trains", "docker run --memory 4g ...")
        return Answer(YES, words)


PLUGIN = MemoryCheck()
