"""Compares steps that are rare and long, such as one with an evaluation in 2,000, which the rounds do not reach.

Both programs run once more in alternating blocks, for many more steps. Such a step is known by its time alone, whatever
the program does in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final, NamedTuple

from profiler.check.model import BASE, CANDIDATE, FAIL, PASS, Limits, Round, StepBlock, TimeLine
from profiler.check.speed import sequential
from profiler.check.speed.sequential import Estimate

RARE_STEPS: Final = "all steps, rare ones too"
LONG: Final = 5.0
"""A step that takes so many times as long as the typical one is a long one."""
STEPS: Final = 3_000
"""Steps of each side in such a round, unless its time is over."""
SECONDS: Final = 30.0
"""Time of such a round without the start of the programs, and no longer than the rounds before took together."""
ROUNDS: Final = 3
"""Rounds of it where the first one shows that long steps cost more."""
ERROR: Final = 0.15
"""Standard error of the log of the time of one long step: what steps of half a second have on a shared machine."""


class RareSteps(NamedTuple):
    """What long steps add to the time of one side, in multiples of its usual time."""

    steps: int
    number: int
    """How many were long."""
    added: float
    error: float

    @classmethod
    def of(cls, blocks: Sequence[StepBlock], side: str) -> RareSteps:
        """The long steps of a side."""
        times = [step for block in blocks if block.side == side for step in block.steps]
        usual = median(times) if times else 1
        long = [time / usual - 1 for time in times if time > LONG * usual]
        steps = max(1, len(times))
        return cls(len(times), len(long), sum(long) / steps, ERROR * math.hypot(*long) / steps)


def rare_steps(measure: Callable[[int], Round], limits: Limits) -> tuple[int, TimeLine | None]:
    """How many steps of each side were seen, and the line of the verdict about those that are long; None: none was.

    One round is enough if they cost the candidate no more than what passes. Otherwise further rounds decide: FAIL if it
    is certain that they cost more, else PASS with the bounds.

    :param measure: runs the round of this number.
    """
    estimates: list[Estimate] = []
    steps, edges = 0, sequential.edges(limits.detect)
    for number in range(1, ROUNDS + 1):
        blocks = measure(number).blocks
        base, candidate = (RareSteps.of(blocks, side) for side in (BASE, CANDIDATE))
        steps = max(steps, min(base.steps, candidate.steps))
        if not base.number and not candidate.number and number == 1:
            return steps, None
        slowdown = math.log1p(candidate.added) - math.log1p(base.added)
        error = math.hypot(base.error, candidate.error)
        estimates.append(Estimate(slowdown, error, error))
        if number == 1 and slowdown <= edges.fails:
            return steps, TimeLine(RARE_STEPS, PASS, slowdown, None, None, 1, None)
    found = sequential.bounds(estimates)
    state = FAIL if found.low > edges.fails else PASS
    smallest = sequential.smallest(found, edges)
    return steps, TimeLine(RARE_STEPS, state, found.mean, found.low, found.high, found.rounds, smallest)
