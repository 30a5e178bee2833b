"""What a figure shows of one round: every side's step times, and the ratio of their medians.

The gate's own estimate is another one: it pairs turns. These are the plain values behind it.
"""

from __future__ import annotations

import math
from statistics import median

from profiler.gate.model import BASE, Round


def step_times(one: Round) -> dict[str, list[float]]:
    """Seconds of every step, by side."""
    found: dict[str, list[float]] = {}
    for turn in one.turns:
        found.setdefault(turn.side, []).extend(step / 1e9 for step in turn.steps)
    return found


def typical(one: Round, side: str) -> float | None:
    """Median step of one side in s; None: it took none."""
    times = step_times(one).get(side)
    return median(times) if times else None


def ratio(one: Round, side: str) -> float | None:
    """ln of `side`'s median step over the base's; None where one of them took none."""
    base, other = typical(one, BASE), typical(one, side)
    return math.log(other / base) if base and other else None
