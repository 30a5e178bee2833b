"""Divides the time of any thread into on a core, runnable without a core, and blocked.

The kernel counts a thread's CPU time and its run delay, which is the time in which it could have run and had no core.
The stepping thread's readings are in `thread_clocks`, at most one in 10 ms; those of every other thread are samples.
Between two readings both clocks are interpolated. Run delay contains the time in which a CPU quota was used up. The
kernel counts that time for the whole control group, summed over cores, so a thread's part of it is an estimate.

What a hypervisor takes from a virtual core while a thread is on it (steal) is in neither clock, if the kernel was built
with CONFIG_PARAVIRT_TIME_ACCOUNTING. It is counted for the whole machine, and happens only to cores that run something:
a thread's part is as large as its part of what ran. Other kernels count it as CPU time of the thread. Runs do not tell
which kernel it was, so there a part of the time in which the thread is blocked is taken for a wait for a core.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats, Intervals, Times, covered_within, times
from profiler.analyse.timing.counters import counter_sums
from profiler.analyse.window import NS_PER_S, Window, has_name, named_rows, thread_rows
from profiler.core.machine import Throttling, estimate_throttling
from profiler.run.filter import rows_by
from profiler.run.model import Run
from profiler.run.tables import NOT_READ

CPU: Final = "thread.cpu_s"
DELAY: Final = "thread.wait_s"
THROTTLED: Final = "group.throttled_s"
PREEMPTED: Final = "stacks.preempted_s"
STEAL: Final = "machine.steal"
UTILIZATION: Final = "machine.cpu_util"
_COVERED: Final = 0.5
"""Share of the spans that readings must cover: outside of them the rates within are assumed."""
_LEAST_RAN: Final = 0.01
"""Least share of the cores' time in which something ran: one tick (10 ms) of one core of ten in the 0.1 s
between two readings."""
MIN_CLOCKED: Final = 20
"""Regions with readings of the clocks at both ends from which their delay is that of all regions of their names."""


@dataclass(frozen=True, slots=True)
class ThreadTime:
    """How the time of one thread divides, in ns; the three parts sum to `wall`."""

    wall: float
    on_core: float
    runnable: float
    """It could have run and had no core; throttled and stolen time is part of it."""
    blocked: float
    throttling: Throttling = field(default_factory=Throttling)
    """The part of `runnable` that CPU quotas caused."""


@dataclass(frozen=True, eq=False, slots=True)
class ThreadReadings:
    """The clocks of a thread, each ns so far, at ascending times."""

    time: Times
    cpu: Floats
    delay: Floats

    def within(self, begin: npt.ArrayLike, end: npt.ArrayLike) -> tuple[Floats, Floats, Floats]:
        """Return the ns of each stretch that readings cover, and the CPU time and the run delay in it."""
        first, last = (np.clip(times(ends), self.time[0], self.time[-1]) for ends in (begin, end))
        covered = np.maximum(0, last - first).astype(np.float64)
        cpu, delay = (after - before for before, after in zip(self.at(first), self.at(last), strict=True))
        return covered, cpu, delay

    def at(self, moments: Times) -> tuple[Floats, Floats]:
        """Return the CPU time and the run delay until each moment, interpolated."""
        return np.interp(moments, self.time, self.cpu), np.interp(moments, self.time, self.delay)


def thread_readings(run: Run, pid: int, tid: int) -> ThreadReadings | None:
    """Return the readings of one thread: its own ones, else samples; None where its run delay was not measured."""
    own = _own_readings(run, pid, tid)
    if own is not None:
        return _without_preemption(run, pid, tid, _with_stolen(own, _steal(run)))
    return dict(_sampled_readings(run, pid, tid)).get((pid, tid))


def _own_readings(run: Run, pid: int, tid: int) -> ThreadReadings | None:
    """Return the clocks that the thread read itself, as they were; None where it read them less than twice."""
    rows = run.thread_clocks[(run.thread_clocks["pid"] == pid) & (run.thread_clocks["tid"] == tid)]
    rows = np.sort(rows[rows["cpu"] != NOT_READ], order="time", kind="stable")
    if len(rows) < 2:
        return None
    return ThreadReadings(times(rows["time"]), rows["cpu"].astype(np.float64), rows["delay"].astype(np.float64))


def _steal(run: Run) -> tuple[Times, Floats]:
    """Return the moments until which the machine's clocks were read, and how much was stolen since the last one, per
    time in which something ran; empty where nothing was stolen."""
    rows, used = (
        np.sort(named_rows(run, run.samples, name), order="time", kind="stable") for name in (STEAL, UTILIZATION)
    )
    if len(rows) != len(used) or not (rows["value"] > 0).any():
        return times([]), np.zeros(0)
    return times(rows["time"]), rows["value"] / np.maximum(used["value"] - rows["value"], _LEAST_RAN)


def _with_stolen(readings: ThreadReadings, steal: tuple[Times, Floats]) -> ThreadReadings:
    """Return the readings with stolen time as run delay: of the time that no clock has, at most what is stolen from a
    thread that is on a core for so long, between two readings of the machine's clocks."""
    at, rate = steal
    if not len(at):
        return readings
    time = np.union1d(readings.time, at[(readings.time[0] < at) & (at < readings.time[-1])])
    cpu, delay = readings.at(time)
    other = np.maximum(0.0, np.diff(time) - np.diff(cpu) - np.diff(delay))
    number = np.minimum(np.searchsorted(at, time[1:]), len(at) - 1)
    on_core, unexplained = (np.bincount(number, each, len(at)) for each in (np.diff(cpu), other))
    stolen = np.minimum(1.0, on_core * rate / np.maximum(1.0, unexplained))
    return ThreadReadings(time, cpu, delay + np.concatenate([[0.0], np.cumsum(other * stolen[number])]))


def _without_preemption(run: Run, pid: int, tid: int, readings: ThreadReadings) -> ThreadReadings:
    """Return the readings as they would be without stack sampling, which preempts the main thread for each sample.

    A sample delays the thread only where that could run, so the CPU time of sampling counts with that share. The other
    parts of a window are scaled to its length, so that each keeps the share that it has without sampling.
    """
    rows = named_rows(run, run.samples, PREEMPTED)
    rows = np.sort(rows[rows["pid"] == pid], order="time")
    if tid != pid or not (rows["value"] > 0).any():
        return readings
    begin, end = _sampling_windows(run, pid, times(rows["time"]))
    ends = np.concatenate([begin, end])
    time = np.union1d(readings.time, ends[(readings.time[0] < ends) & (ends < readings.time[-1])])
    wall, cpu, delay = (np.diff(each) for each in (time, *readings.at(time)))
    number = np.minimum(np.searchsorted(end, time[1:]), len(rows) - 1)
    inside = (begin[number] <= time[:-1]) & (time[1:] <= end[number])
    length, used, waited = (np.bincount(number, inside * each, len(rows)) for each in (wall, cpu, delay))
    sampling = rows["value"] * NS_PER_S * length / np.maximum(1, end - begin)
    caused = np.minimum(waited, sampling * (used + waited) / np.maximum(1, length))
    counts = (caused > 0) & (caused < length)
    stretch, remaining = np.ones(len(rows)), np.ones(len(rows))
    stretch[counts] = length[counts] / (length[counts] - caused[counts])
    remaining[counts] = 1 - caused[counts] / waited[counts]
    cpu *= np.where(inside, stretch[number], 1.0)
    delay *= np.where(inside, (stretch * remaining)[number], 1.0)
    return ThreadReadings(time, *(np.concatenate([[0.0], np.cumsum(each)]) for each in (cpu, delay)))


def _sampling_windows(run: Run, pid: int, end: Times) -> tuple[Times, Times]:
    """Return the begins and the ends of the windows of stack sampling that end at `end`: each begins at its first
    sample."""
    samples = np.sort(times(run.stacks["begin"][run.stacks["pid"] == pid]))
    if not len(samples):
        return end, end
    first = np.searchsorted(samples, np.concatenate([samples[:1], end[:-1]]))
    return np.minimum(samples[np.minimum(first, len(samples) - 1)], end), end


def _sampled_readings(
    run: Run, pid: int | None = None, tid: int | None = None
) -> Iterator[tuple[tuple[int, int], ThreadReadings]]:
    """Yield (pid, tid) and the samples of each thread, or of one; threads with fewer than two are left out."""
    cpu, delay = named_rows(run, run.samples, CPU), named_rows(run, run.samples, DELAY)
    if pid is not None:
        cpu, delay = (rows[(rows["pid"] == pid) & (rows["tid"] == tid)] for rows in (cpu, delay))
    by_process, steal = rows_by(cpu, "pid"), _steal(run)
    for process, delays in rows_by(delay, "pid").items():
        used_by = rows_by(by_process.get(process, cpu[:0]), "tid")
        for thread, waits in rows_by(delays, "tid").items():
            used = used_by.get(thread)
            if used is not None and len(used) == len(waits) > 1:  # both are written at the same moments
                readings = ThreadReadings(times(waits["time"]), used["value"] * NS_PER_S, waits["value"] * NS_PER_S)
                yield (process, thread), _with_stolen(readings, steal)


def thread_time(run: Run, pid: int, tid: int, spans: Intervals) -> ThreadTime | None:
    """Return how the time of a thread within `spans` divides; None where it was not measured."""
    readings = thread_readings(run, pid, tid)
    divided = divide(readings, spans) if readings else None
    if divided is None or not divided.runnable:
        return divided
    return ThreadTime(
        divided.wall, divided.on_core, divided.runnable, divided.blocked, throttling(run, divided.runnable, spans)
    )


def divide(readings: ThreadReadings, spans: Intervals) -> ThreadTime | None:
    """Divide `spans` by the readings of a thread; None where they cover too little of them."""
    covered, cpu, delay = (float(part.sum()) for part in readings.within(spans.begin, spans.end))
    wall = float(spans.measure())
    if not wall or covered < _COVERED * wall:
        return None
    scale = wall / covered
    on_core = min(wall, cpu * scale)
    runnable = min(wall - on_core, delay * scale)
    return ThreadTime(wall, on_core, runnable, wall - on_core - runnable)


def step_delays(run: Run, window: Window) -> npt.NDArray[np.int64] | None:
    """Return the ns of each measured step in which its thread could have run and had no core; None: not measured.

    A step without readings of its own has the mean rate of the others.
    """
    readings = thread_readings(run, window.pid, window.tid)
    if readings is None or divide(readings, window.spans) is None:
        return None
    covered, _, delay = readings.within(window.begin, window.end)
    rate = float(delay.sum() / covered.sum())
    # a thread may lose its core after the time of a boundary, before its clocks are read: that is the next step's delay
    so_far, wall = np.cumsum(delay + (window.wall - covered) * rate), np.cumsum(window.wall)
    within = wall + np.minimum(0.0, np.minimum.accumulate(so_far - wall))
    return times(np.diff(np.rint(within), prepend=0))


@dataclass(frozen=True, eq=False, slots=True)
class WaitsWithoutCore:
    """What a device that is a thread counted while the host waited for it: ns of each measured step."""

    stalled: Times
    """The device or the host had no core."""
    delayed: Times
    """The host had none. This is part of its run delay."""

    def remaining(self, delays: Times) -> Times:
        """Return the run delays of the steps outside of these waits. Delays are known for stretches of 10 ms, and waits
        for each step, so they are taken out of all steps in proportion."""
        return times(delays * max(0.0, 1 - self.delayed.sum() / max(1, delays.sum())))


def waits_without_core(run: Run, window: Window) -> WaitsWithoutCore | None:
    """Return the waits for a device in which there was no core; None: the device does not count them."""
    counted = counter_sums(run, window, ("waits_stalled_ns", "waits_delayed_ns"))
    return WaitsWithoutCore(*(times(each) for each in counted.values())) if len(counted) == 2 else None


def time_without_core(run: Run, window: Window) -> tuple[float | None, bool]:
    """Return the ns of the measured steps that may be waits for a core, and whether the device counts them; None: not
    measured.

    Waits for a device that is a thread count where the device or the host had no core, if the device counts them. Else
    the delays of all threads of the program count: each lengthens the steps by its own length at most.
    """
    delays, waits = step_delays(run, window), waits_without_core(run, window)
    if delays is None:
        return None, False
    if waits is not None:
        return float(waits.remaining(delays).sum() + waits.stalled.sum()), True
    others = (readings for thread, readings in _sampled_readings(run) if thread != (window.pid, window.tid))
    return float(delays.sum() + sum(each.within(window.begin, window.end)[2].sum() for each in others)), False


def delays_in_regions(run: Run, window: Window, names: Collection[str]) -> dict[str, float]:
    """For each of these names, the share of the stepping thread's regions in which it could have run and had no core.

    A name is missing if the run delay was read at both ends of fewer than MIN_CLOCKED of its regions.
    """
    rows = thread_rows(run.thread_clocks, window)
    rows = np.sort(rows[rows["cpu"] == NOT_READ], order="time", kind="stable")
    regions = thread_rows(named_rows(run, run.regions, *names), window)
    clocked = regions[np.isin(regions["begin"], rows["time"]) & np.isin(regions["end"], rows["time"])]
    clocked = clocked[window.step_rows(clocked["begin"]) >= 0]
    at_begin, at_end = (rows["delay"][np.searchsorted(rows["time"], clocked[end])] for end in ("begin", "end"))
    delay = (at_end - at_begin).astype(np.float64)
    own = _own_readings(run, window.pid, window.tid)
    if own is not None:
        before, after = (
            each.within(clocked["begin"], clocked["end"])[2] for each in (own, _with_stolen(own, _steal(run)))
        )
        delay += after - before
    of_program, shares = _share_of_program(run, window), {}
    for name in names:
        alike = has_name(run, clocked, name)
        if alike.sum() >= MIN_CLOCKED and (wall := float((clocked["end"] - clocked["begin"])[alike].sum())):
            shares[name] = min(1.0, of_program * float(delay[alike].sum()) / wall)
    return shares


def _share_of_program(run: Run, window: Window) -> float:
    """Return the share of the stepping thread's delay that stack sampling did not cause."""
    own, corrected = _own_readings(run, window.pid, window.tid), thread_readings(run, window.pid, window.tid)
    if own is None or corrected is None:
        return 1.0
    before, after = (
        float(each.within(window.begin, window.end)[2].sum()) for each in (_with_stolen(own, _steal(run)), corrected)
    )
    return min(1.0, after / before) if before else 1.0


def other_threads(run: Run, window: Window) -> dict[int, ThreadTime]:
    """Return how the time of the stepping process's other threads divides within the measured steps, by thread."""
    threads = {}
    for (pid, tid), readings in _sampled_readings(run):
        if pid == window.pid and tid != window.tid:
            covered, cpu, delay = (float(part.sum()) for part in readings.within(window.begin, window.end))
            threads[tid] = ThreadTime(covered, cpu, delay, max(0.0, covered - cpu - delay))
    return threads


def throttling(run: Run, runnable: float, spans: Intervals) -> Throttling:
    """Return the share of a thread's run delay `runnable` that CPU quotas caused."""
    rows = named_rows(run, run.samples, THROTTLED)
    if not len(rows):
        return Throttling()
    rows = rows[np.argsort(rows["time"], kind="stable")]
    # at the mean rate between two readings
    at = times(rows["time"])
    inside, passed = covered_within(spans, at[:-1], at[1:]), np.maximum(np.diff(at), 1)
    throttled = float((np.diff(rows["value"] * NS_PER_S) * inside / passed).sum())
    delays = [readings.within(spans.begin, spans.end)[2] for _, readings in _sampled_readings(run)]
    return estimate_throttling(throttled, runnable, sum(float(delay.sum()) for delay in delays))
