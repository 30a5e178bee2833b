"""Simulates a host that submits work to a device with queues and waits for it, and reads out of a run what they did.

The host does its own work in order. An activity of the device begins when the host has submitted it, when its queue is
free, and when the activity of another queue that it depends on has ended. A wait of the host ends when the activity
that it waits for has ended. Nothing else is copied from the recording.

A trace does not tell what a synchronization waits for. It is taken to be the activity that ended last before the call
did, of those submitted before the call began; a copy that blocks waits for itself. The time from then until the call
returns is the host's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Indices, Times, times
from profiler.analyse.timing.host_timeline import BLOCKED, CODE, REGION, HostTimeline
from profiler.analyse.timing.idle import partition
from profiler.analyse.window import Window, process_rows
from profiler.run.model import Run, StepKind, Table

NOTHING: Final = -1
"""An index that refers to no activity."""
EARLIER: Final = -2
"""The target of a wait for all work of the repetition before."""
REPETITIONS: Final = 3
"""How often a schedule is simulated in a row. Each further repetition begins with the work that the one before left in
the queues, as a step in the middle of a training does."""


@dataclass(frozen=True, eq=False, slots=True)
class Schedule:
    """What a host and a device did, without the times that follow from each other. All times are ns.

    The host's clock counts only its own work: it stands still while the host waits. Activities are in the order in
    which they began, which keeps the order within a queue and puts every activity after those that it depends on.
    """

    work: int
    """The host's clock at the end."""
    wait_at: Times
    """The host's clock at which each wait begins, ascending."""
    wait_for: Indices
    """The activity that each wait is for, NOTHING or EARLIER."""
    wait_lead: Times
    """How long before the end of that activity each wait ends: a copy may return before all of it has arrived."""
    submitted: Times
    """The host's clock at which each activity is submitted; how long after the begin of a wait, where another thread
    submits it meanwhile, is a part of `latency`."""
    waits_before: Indices
    """How many waits of the host have ended before each activity is submitted."""
    queue: Indices
    """The number of the queue of each activity."""
    duration: Times
    latency: Times
    """The time from when each activity is submitted until it can begin in a free queue."""
    gap: Times
    """The time from the end of the activity before it in its queue until it can begin."""
    after: Indices
    """The activity of another queue that each activity depends on, or NOTHING."""
    delay: Times
    """The time by which each activity began later than the recording explains."""
    busy_until: Mapping[int, int] = field(default_factory=dict)
    """Queue -> when it has done the work that was submitted before."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """The outcome of a simulation, ns."""

    host: int
    """The time until the host has done everything once."""
    both: int
    """The time until the device has, too."""
    steady: int
    """The time that a further repetition takes."""


def simulate(schedule: Schedule) -> Simulated:
    """Simulate `schedule` several times in a row."""
    activities = list(
        zip(
            (schedule.submitted + schedule.latency).tolist(),
            schedule.waits_before.tolist(),
            schedule.queue.tolist(),
            schedule.duration.tolist(),
            schedule.gap.tolist(),
            schedule.after.tolist(),
            schedule.delay.tolist(),
            strict=True,
        )
    )
    waits = list(zip((schedule.wait_at + schedule.wait_lead).tolist(), schedule.wait_for.tolist(), strict=True))
    free = dict(schedule.busy_until)
    hosts, both = [0], [0]
    for _ in range(REPETITIONS):
        hosts.append(_repeat(schedule.work, waits, activities, free, hosts[-1]))
        both.append(max(hosts[-1], *free.values()) if free else hosts[-1])
    return Simulated(hosts[1], both[1], both[-1] - both[-2])


_Activity = tuple[int, int, int, int, int, int, int]


def _repeat(
    work: int, waits: list[tuple[int, int]], activities: list[_Activity], free: dict[int, int], begin: int
) -> int:
    """Simulate once.

    :param free: when each queue becomes free; updated.
    :param begin: when the host begins.
    :returns: when the host ends.
    """
    earlier = max(free.values(), default=0)
    shifts = [begin]  # what to add to the host's clock after so many waits
    ends: list[int] = []

    def run_until(count: int) -> None:
        for ready, waited, queue, duration, gap, after, delay in activities[len(ends) : count]:
            moment = ready + shifts[min(waited, len(shifts) - 1)]
            if queue in free:
                moment = max(moment, free[queue] + gap)
            if after >= 0:
                moment = max(moment, ends[after])
            free[queue] = moment + delay + duration
            ends.append(free[queue])

    for at, target in waits:
        shift = shifts[-1]
        if target == EARLIER:
            shift = max(shift, earlier - at)
        elif target >= 0:
            run_until(target + 1)
            shift = max(shift, ends[target] - at)
        shifts.append(shift)
    run_until(len(activities))
    return work + shifts[-1]


# ---------------------------------------------------------------- what a run recorded

_CLOCK_ERROR: Final = 2_000
"""ns by which an activity may seem to end after the call that waited for it: the clocks of the host and the device are
matched to about 1 µs."""
_UNEXPLAINED: Final = 5_000
"""ns of delay from which another queue is searched for what an activity waited for. Kernels of one queue follow each
other within 1 to 3 µs."""
_HANDOVER: Final = 25_000
"""ns within which an activity begins after the one of another queue that it depends on: 2 to 10 µs on the public traces
of NVIDIA, 12 to 17 µs on those of AMD."""
_MOST: Final = 0.9
"""Share of a longer delay that such an activity must explain: others between both may be missing in a trace."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class ReplayTimeline:
    """What the host and the device did in the measured steps, on the clock of the run."""

    begin: Times
    """Pieces of the host's time, which follow each other without a break."""
    end: Times
    category: Indices
    """The host category (CODE) of each piece; of time without any record, what the caller says."""
    waiting: Flags
    """Pieces in which the host waits for the device."""
    call: Indices
    """The row of `calls` that each piece belongs to, or -1."""
    calls: Table
    wait_for: Indices
    """The row of `activities` that each waiting piece waits for, NOTHING or EARLIER."""
    wait_lead: Times
    """How long before the end of that activity the wait ends."""
    activities: Table
    """In the order in which they began."""
    submitted: Times
    """When the host submitted each of them; its begin, where that was not recorded."""
    queue: Indices
    latency: Times
    gap: Times
    after: Indices
    delay: Times
    busy_until: Mapping[int, int]
    """Queue -> ns after the begin of the first piece at which it has done the work that was submitted before."""
    unexplained: int
    """ns for which the host stayed in calls that wait although what they wait for had ended, beyond the usual."""


def timeline(run: Run, window: Window, host: HostTimeline, unrecorded: str) -> ReplayTimeline:
    """Return what happened from the first measured step to the last.

    :param unrecorded: the host category of time of which nothing was recorded.
    """
    low, high = int(window.begin[0]), _end_of_host(run, window, host)
    rows = process_rows(run.activities, window)
    rows = rows[np.argsort(rows["begin"], kind="stable")]
    # a stream of a device is a queue
    both = (times(rows["device"]) << 32) + times(rows["stream"])
    queue = times(np.unique(both, return_inverse=True)[1])
    submitted, is_recorded = _submissions(rows, process_rows(run.calls, window))
    inside = (submitted >= low) & (submitted < high)
    numbers = np.where(inside, np.cumsum(inside) - 1, EARLIER)
    begin, end, segment = _pieces(host, low, high)
    recorded, source = segment >= 0, np.append(host.source, REGION)[segment]
    blocked = np.flatnonzero(recorded & (source == BLOCKED))
    call = np.where(recorded & (source != REGION), np.append(host.record, -1)[segment], -1)
    targets, until, lead = _targets(host.calls, np.unique(call[blocked]), rows, submitted)
    target = targets[call[blocked]]
    # each wait is followed by the rest of its call
    middle = end.copy()
    middle[blocked] = np.clip(until[call[blocked]], begin[blocked], end[blocked])
    rest = end[blocked] - middle[blocked]
    order = np.argsort(np.concatenate([np.arange(len(begin)), blocked + 0.5]), kind="stable")
    waiting = np.zeros(len(order), np.bool_)
    waiting[blocked + np.arange(len(blocked))] = True
    wait_for, wait_lead = np.full(len(order), NOTHING, np.int64), np.zeros(len(order), np.int64)
    wait_for[waiting] = np.where(target >= 0, numbers[target], target)
    wait_lead[waiting] = lead[call[blocked]]
    category = np.where(recorded, np.append(host.category, 0)[segment], CODE[unrecorded])
    return ReplayTimeline(
        np.concatenate([begin, middle[blocked]])[order],
        np.concatenate([middle, end[blocked]])[order],
        np.concatenate([category, category[blocked]])[order],
        waiting,
        np.concatenate([call, call[blocked]])[order],
        host.calls,
        wait_for,
        wait_lead,
        rows[inside],
        submitted[inside],
        queue[inside],
        *_dependencies(rows[inside], queue[inside], submitted[inside], is_recorded[inside]),
        {
            number: int(ends.max()) - low
            for number in np.unique(queue[inside]).tolist()
            if len(ends := rows["end"][(queue == number) & (submitted < low) & (rows["end"] > low)])
        },
        int(np.maximum(rest - np.median(rest), 0).sum()) if len(rest) else 0,
    )


def _pieces(host: HostTimeline, low: int, high: int) -> tuple[Times, Times, Indices]:
    """Return the host's time cut at every change of what it did, and the segment of each piece; -1: nothing was
    recorded."""
    stretches, segment = partition(host, low, high)
    begin, end = np.maximum(stretches.begin, low), np.minimum(stretches.end, high)
    inside = end > begin
    return begin[inside], end[inside], segment[inside]


def _end_of_host(run: Run, window: Window, host: HostTimeline) -> int:
    """Return the end of the last step; of a trace without steps, the end of what the host did: the device may end
    later."""
    if run.step is None or run.step.kind is not StepKind.WHOLE_TRACE or not len(host.segments.end):
        return int(window.end[-1])
    return min(int(window.end[-1]), int(host.segments.end[-1]))


def _submissions(rows: Table, calls: Table) -> tuple[Times, Flags]:
    """Return when each activity was submitted, and whether that was recorded."""
    launches = calls[calls["correlation"] > 0]
    launches = launches[np.argsort(launches["correlation"], kind="stable")]
    numbers = times(launches["correlation"])
    begin = times(rows["begin"])
    if not len(numbers):
        return begin, np.zeros(len(rows), np.bool_)
    at = np.minimum(np.searchsorted(numbers, times(rows["correlation"])), len(numbers) - 1)
    is_recorded = (numbers[at] == rows["correlation"]) & (rows["correlation"] > 0)
    return np.where(is_recorded, np.minimum(times(launches["begin"])[at], begin), begin), is_recorded


def _targets(calls: Table, waits: Indices, rows: Table, submitted: Times) -> tuple[Indices, Times, Times]:
    """For each call: the activity that it waits for, when its wait ended, and how long before the end of the activity.

    :param waits: rows of the calls that wait.
    """
    targets = np.full(len(calls) + 1, NOTHING, np.int64)
    until, lead = np.zeros(len(calls) + 1, np.int64), np.zeros(len(calls) + 1, np.int64)
    begins, ends = times(rows["begin"]), times(rows["end"])
    by_end = np.argsort(ends, kind="stable")
    sorted_ends = ends[by_end]
    caused = {number: row for row, number in enumerate(rows["correlation"].tolist()) if number}
    for call in waits.tolist():
        begin, end = int(calls["begin"][call]), int(calls["end"][call])
        own = caused.get(int(calls["correlation"][call]))
        if own is not None:
            # a copy of pageable memory returns when the last part of it is on its way, and a small one at once
            if begins[own] < end:
                targets[call], until[call] = own, min(ends[own], end)
                lead[call] = ends[own] - until[call]
            continue
        at = int(np.searchsorted(sorted_ends, end + _CLOCK_ERROR, "right")) - 1
        while at >= 0 and submitted[by_end[at]] >= begin:
            at -= 1
        if at >= 0:
            targets[call], until[call] = by_end[at], sorted_ends[at]
    return targets, until, lead


def _dependencies(
    rows: Table, queue: Indices, submitted: Times, is_recorded: Flags
) -> tuple[Times, Times, Indices, Times]:
    """For each activity: its latency, gap, the activity of another queue that it depends on, and its delay."""
    begin, end = times(rows["begin"]), times(rows["end"])
    # the row before each row in the same queue, or -1
    by_queue = np.argsort(queue, kind="stable")
    before = np.full(len(queue), -1, np.int64)
    same = queue[by_queue][1:] == queue[by_queue][:-1]
    before[by_queue[1:][same]] = by_queue[:-1][same]
    free = np.where(before >= 0, end[before], np.iinfo(np.int64).min // 2)
    latency = begin - submitted
    is_free = is_recorded & (free <= submitted)
    usual = int(np.median(latency[is_free])) if is_free.any() else 0
    latency = np.where(is_recorded, np.minimum(latency, usual), 0)
    waited = (before >= 0) & (free > submitted)
    gap = begin - free  # below 0 where a kernel begins while the one before it ends
    usual = int(np.median(gap[waited])) if waited.any() else 0
    gap = np.where(before >= 0, np.minimum(gap, usual), 0)
    ready = np.maximum(submitted + latency, free + gap)
    delay = np.maximum(begin - ready, 0)
    after = np.full(len(rows), NOTHING, np.int64)
    order = np.argsort(end, kind="stable")
    last = np.searchsorted(end[order], begin, "right") - 1
    for row in np.flatnonzero(delay > _UNEXPLAINED).tolist():
        at = int(last[row])
        while at >= 0 and begin[row] - end[order[at]] <= max(_HANDOVER, (1 - _MOST) * delay[row]):
            other = int(order[at])
            if queue[other] != queue[row] and end[other] > ready[row] and other < row:
                after[row], delay[row] = other, begin[row] - end[other]
                break
            at -= 1
    return times(latency), times(gap), after, times(delay)
