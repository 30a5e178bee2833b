"""Whether CPU and memory of processes and threads can be sampled."""

from __future__ import annotations

import os
import time

from profiler.core.capability import NO, PARTLY, YES, Answer
from profiler.core.procfs import descendants, thread_times
from profiler.record.checks import Place
from profiler.record.collectors.host import HostCollector


class HostCheck:
    """psutil, the scheduler's own clocks, and the kernel's lists of children."""

    name = "host"
    title = "CPU and memory"
    order = 35
    needed = True
    patience_s = 10.0

    def look(self, place: Place) -> Answer:
        reason = HostCollector().available()
        if reason:
            return Answer(NO, reason, "pip install psutil")
        pid = os.getpid()
        if not thread_times(pid, [pid]):
            return Answer(PARTLY, "this kernel keeps no times of threads (CONFIG_SCHED_INFO): processes only")
        descendants(pid)
        resolution = time.clock_getres(time.CLOCK_MONOTONIC)
        if resolution > 1e-6:
            return Answer(PARTLY, f"the clock ticks at {resolution * 1e6:g} µs only: short steps cannot be told apart")
        return Answer(YES, f"processes and threads; the clock ticks at {resolution * 1e9:g} ns")


PLUGIN = HostCheck()
