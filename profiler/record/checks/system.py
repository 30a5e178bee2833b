"""Checks of the machine: processes and clocks, load, memory, room for runs."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from profiler.core.machine import NO, NOT_KNOWN, PARTLY, YES, Answer
from profiler.core.procfs import cpu_times, process_tree, thread_times
from profiler.core.units import share, size
from profiler.record import kernel
from profiler.record.doctor import Setup, check

_MIN_STOLEN: Final = 0.01
"""Share of CPU time since boot. If other virtual machines took more, times are not steady."""
_VARYING_GOVERNORS: Final = ("powersave", "ondemand", "conservative", "schedutil")
_QUIET_LOAD: Final = 0.25
"""Threads that run or wait for a core, per core of the machine, below which a program is hardly disturbed."""
_MIN_DISK: Final = 1 << 30
"""Free bytes below which a long recording at level standard may fill the disk."""
_MIN_MEMORY: Final = 1 << 30
"""Bytes that the recorder, the sampler and the report need beside the program."""
_OTHER_FOLDER: Final = "choose another folder: run --out DIR"


@check("host", "CPU and memory", order=35, needed=True, patience_s=10)
def host(_: Setup) -> Answer:
    """Check whether psutil, the scheduler's clocks and the kernel's lists of children can be read."""
    from profiler.record.collectors.host import HostCollector

    reason = HostCollector().available()
    if reason:
        return Answer(NO, reason, "pip install psutil")
    pid = os.getpid()
    process_tree(pid)
    if not thread_times(pid, [pid]):
        return Answer(PARTLY, "this kernel keeps no times of threads (CONFIG_SCHED_INFO): only processes are measured")
    resolution = time.clock_getres(time.CLOCK_MONOTONIC)
    if resolution > 1e-6:
        return Answer(PARTLY, f"the clock ticks at {resolution * 1e6:g} µs only: short steps cannot be distinguished")
    return Answer(YES, f"processes and threads; the clock ticks at {resolution * 1e9:g} ns")


@check("clocks", "steady times", order=40)
def clocks(_: Setup) -> Answer:
    """Check whether times can be trusted: throttled cores, stolen time, changing frequencies. Nothing is timed."""
    cores, limit, governor, times = kernel.cores(), kernel.cpu_limit(), kernel.governor(), cpu_times()
    stolen = times.stolen / times.total if times and times.total else 0.0
    problems, remedies = [], []
    if limit is not None and limit < cores:
        problems.append(f"the container may use {limit:g} of the {cores} cores that programs see: they are throttled")
        remedies.append(f"export OMP_NUM_THREADS={max(1, int(limit))}")
    if stolen > _MIN_STOLEN:
        problems.append(f"other virtual machines took {share(stolen)} of the CPU time since boot")
    if governor in _VARYING_GOVERNORS:
        problems.append(f"the CPU changes its frequency (governor {governor})")
        remedies.append("sudo cpupower frequency-set -g performance")
    if problems:
        return Answer(PARTLY, "; ".join(problems), remedies[0] if remedies else "")
    shown = f"CPU frequency policy {governor or 'unknown'}"
    return Answer(YES, f"{cores} cores, no core is capped; {share(stolen)} taken by other virtual machines; {shown}")


@check("load", "quiet machine", order=41)
def load(_: Setup) -> Answer:
    """Check whether other programs compute, by the mean of the last minute: the doctor itself hardly changes it."""
    try:
        busy = os.getloadavg()[0]
    except OSError:
        return Answer(NOT_KNOWN, "the kernel reports no load average")
    cores = os.cpu_count() or 1  # the load is of the whole machine, whatever this container may use
    shown = f"load {busy:.1f} on {cores} cores in the last minute"
    if busy < _QUIET_LOAD * cores:
        return Answer(YES, shown)
    effect = "more threads want a core than there are cores" if busy > cores else "other programs are at work"
    return Answer(PARTLY, f"{shown}: {effect}, times will vary", "see which: top")


@check("disk", "room for runs", order=50, needed=True)
def disk(setup: Setup) -> Answer:
    """Check whether the folder of runs, or the nearest existing one above it, can be written, and how much is free."""
    runs = setup.runs.absolute()
    folder = next((path for path in (runs, *runs.parents) if path.exists()), Path("/"))
    try:
        if not folder.is_dir():
            return Answer(NO, f"{folder} is not a folder", _OTHER_FOLDER)
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 12))
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Answer(NO, f"{folder} cannot be written: {error.strerror}", _OTHER_FOLDER)
    if free < _MIN_DISK:
        return Answer(PARTLY, f"{size(free)} free at {folder}: long recordings may not fit", _OTHER_FOLDER)
    return Answer(YES, f"{size(free)} free at {folder}")


@check("memory", "memory", order=51)
def memory(_: Setup) -> Answer:
    """Read how much memory there is, and whether a container allows less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    allowed = min(machine, kernel.memory_limit() or machine)
    shown = f"the container may use {size(allowed)} of the machine's {size(machine)}"
    if allowed == machine:
        shown = f"{size(machine)}, no limit below it"
    if allowed < _MIN_MEMORY:
        return Answer(PARTLY, f"{shown}: too little for recorder and training", "docker run --memory 4g ...")
    return Answer(YES, shown)
