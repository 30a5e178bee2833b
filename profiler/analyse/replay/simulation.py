"""Simulates a host that submits work to a device with queues, and waits for it: a pure function of a schedule.

The host does its own work in order. An activity of the device begins when the host has submitted it, when its queue is
free, and when the activity of another queue that it depends on has ended. A wait of the host ends when the activity
that it waits for has ended. Nothing else is copied from the recording.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from profiler.analyse.intervals import Indices, Times

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
