"""Doubts about the machine: its speed, other programs, other virtual machines, clocks held down."""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from profiler.check.chance import mean
from profiler.check.evidence import Evidence
from profiler.check.nouns import some

UNSTEADY: Final = 1.5
"""Times by which the base's own step differs between rounds."""
STEAL: Final = 0.05
LOAD: Final = 0.5
"""Threads of other programs a core that want to run; without the number of cores: LOAD_UNKNOWN threads."""
LOAD_UNKNOWN: Final = 1.0


def speed(of: Evidence) -> str | None:
    if not of.seen or len({one.pairs.by_tokens for one in of.seen}) > 1:
        return None
    times = {one.round.number: float(np.median(one.pairs.first)) for one in of.seen}
    slow, fast = max(times, key=lambda number: times[number]), min(times, key=lambda number: times[number])
    if times[slow] <= UNSTEADY * times[fast]:
        return None
    times_as_long = times[slow] / times[fast]
    return f"The base's own steps took {times_as_long:.1f} times as long in round {slow} as in round {fast}."


def steal(of: Evidence) -> str | None:
    known = [one.conditions.steal for one in of.rounds if one.conditions.steal is not None]
    if not known or mean(known) <= STEAL:
        return None
    return f"Other virtual machines took {100 * mean(known):.0f}% of the cores' time (steal)."


def load(of: Evidence) -> str | None:
    """While the sides stand still nothing of theirs is runnable: what is belongs to others."""
    known = [one.conditions.load for one in of.rounds if one.conditions.load is not None]
    if not known:
        return None
    cores = of.rounds[0].conditions.cores
    if mean(known) < max(LOAD * (cores or 0), LOAD_UNKNOWN):
        return None
    wanted = "the only core" if cores == 1 else f"one of {cores or 'the'} cores"
    return f"Other programs were running: {mean(known):.1f} threads of theirs wanted {wanted}."


def throttled(of: Evidence) -> str | None:
    held = Counter(what for one in of.rounds for what in one.conditions.throttled)
    if not held:
        return None
    said = ", ".join(f"{what} in {number} of {some(len(of.rounds), 'round')}" for what, number in sorted(held.items()))
    return f"Clocks were held down: {said}."
