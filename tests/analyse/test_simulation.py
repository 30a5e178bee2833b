"""The simulation against a slow one that repeats all rules until nothing moves, on random small schedules."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from profiler.analyse.simulation import EARLIER, NOTHING, Schedule, simulate

SEEDS = range(60)


def random_schedule(seed: int) -> Schedule:
    """A schedule of up to 12 activities in up to 3 queues, with up to 6 waits."""
    draw = random.Random(seed)
    count, wait_count = draw.randint(1, 12), draw.randint(0, 6)
    moments = sorted(draw.randint(0, 60) for _ in range(count + wait_count))
    is_wait = [True] * wait_count + [False] * count
    draw.shuffle(is_wait)
    waits: list[tuple[int, int]] = []
    rows = []
    queues = [draw.randint(0, 2) for _ in range(count)]
    for moment, wait in zip(moments, is_wait, strict=True):
        number = len(rows)
        if wait:
            waits.append((moment, draw.choice([NOTHING, EARLIER, *range(number)])))
        else:
            after = draw.choice([NOTHING, *(at for at in range(number) if queues[at] != queues[number])])
            rows.append((moment, len(waits), draw.randint(0, 20), draw.randint(0, 3), after, draw.randint(0, 2)))
    submitted, before, duration, gap, after_, delay = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return Schedule(
        work=moments[-1] + draw.randint(0, 9),
        wait_at=np.array([at for at, _ in waits], np.int64),
        wait_for=np.array([target for _, target in waits], np.int64),
        wait_lead=np.zeros(len(waits), np.int64),
        submitted=submitted,
        waits_before=before,
        queue=np.array(queues, np.int64),
        duration=duration,
        latency=np.full(count, draw.randint(0, 3), np.int64),
        gap=gap,
        after=after_,
        delay=delay,
        busy_until={queue: draw.randint(0, 30) for queue in range(draw.randint(0, 3))},
    )


def relaxed(schedule: Schedule) -> tuple[int, int]:
    """When the host and both have done everything once: every rule is applied until no time changes."""
    waits = [0] * len(schedule.wait_at)
    ends = [0] * len(schedule.queue)
    earlier = max(schedule.busy_until.values(), default=0)
    while True:
        before = [*waits, *ends]
        for number, (at, target) in enumerate(zip(schedule.wait_at, schedule.wait_for, strict=True)):
            previous = waits[number - 1] - schedule.wait_at[number - 1] if number else 0
            done = earlier if target == EARLIER else ends[target] if target >= 0 else 0
            waits[number] = int(max(at + previous, done))
        for row, queue in enumerate(schedule.queue.tolist()):
            waited = int(schedule.waits_before[row])
            shift = waits[waited - 1] - schedule.wait_at[waited - 1] if waited else 0
            begin = schedule.submitted[row] + schedule.latency[row] + shift
            others = [at for at in range(row) if schedule.queue[at] == queue]
            free = ends[others[-1]] if others else schedule.busy_until.get(queue)
            begin = begin if free is None else max(begin, free + schedule.gap[row])
            begin = max(begin, ends[schedule.after[row]]) if schedule.after[row] >= 0 else begin
            ends[row] = int(begin + schedule.delay[row] + schedule.duration[row])
        if before == [*waits, *ends]:
            host = schedule.work + (waits[-1] - int(schedule.wait_at[-1]) if waits else 0)
            return host, max(host, *ends, earlier)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_equals_a_slow_simulation(seed: int) -> None:
    schedule = random_schedule(seed)
    simulated = simulate(schedule)
    assert (simulated.host, simulated.both) == relaxed(schedule)


@pytest.mark.parametrize("seed", SEEDS)
def test_removing_work_never_lengthens(seed: int) -> None:
    schedule = random_schedule(seed)
    whole = simulate(schedule)
    draw = random.Random(seed)
    shorter = np.array([draw.randint(0, length) for length in schedule.duration.tolist()], np.int64)
    for changed in (
        replace(schedule, duration=shorter),
        replace(schedule, wait_for=np.full_like(schedule.wait_for, NOTHING)),
        replace(schedule, delay=np.zeros_like(schedule.delay), gap=np.zeros_like(schedule.gap)),
        replace(schedule, after=np.full_like(schedule.after, NOTHING)),
        replace(schedule, work=schedule.work // 2, wait_at=schedule.wait_at // 2, submitted=schedule.submitted // 2),
    ):
        less = simulate(changed)
        assert less.host <= whole.host
        assert less.both <= whole.both


def test_steps_that_follow_each_other_take_as_long_as_the_slower_side() -> None:
    """A host that never waits, and a device that needs twice as long: the queue grows, and the device decides."""
    one = np.array([0], np.int64)
    nothing = np.zeros(0, np.int64)
    schedule = Schedule(10, nothing, nothing, nothing, one, one, one, one + 20, one, one, one - 1, one)
    simulated = simulate(schedule)
    assert (simulated.host, simulated.both, simulated.steady) == (10, 20, 20)
    assert simulate(replace(schedule, duration=one + 4)).steady == 10
