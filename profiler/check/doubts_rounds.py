"""Doubts about the rounds' values: drift, one odd round, and stalls too rare and long for the gate's lines."""

from __future__ import annotations

import math
from typing import Final

from profiler.check.chance import ODD, chance, mean
from profiler.check.evidence import Evidence
from profiler.check.reason import percent
from profiler.check.stalls import rare_stalls

FEWEST_DRIFT: Final = 5
FEWEST_ODD: Final = 5


def drift(of: Evidence) -> str | None:
    """A line through the rounds' slow-downs that rises or falls by more than FAILs are made of."""
    values = [one.typical for one in of.seen]
    number = len(values)
    if number < FEWEST_DRIFT:
        return None
    places = [place - (number - 1) / 2 for place in range(number)]
    square = math.fsum(place**2 for place in places)
    slope = math.fsum(place * value for place, value in zip(places, values, strict=True)) / square
    middle = mean(values)
    rest = math.fsum((value - middle - slope * place) ** 2 for place, value in zip(places, values, strict=True))
    by = slope * (number - 1)
    if abs(by) <= of.at.fails or chance(slope, math.sqrt(rest / (number - 2) / square), number - 2) >= ODD:
        return None
    return f"The slow-down changed by {percent(by)} from the first round to the last: it is not one number."


def odd_round(of: Evidence) -> str | None:
    """A round that the others, taken by themselves, make next to impossible; of several the oddest."""
    if len(of.seen) < FEWEST_ODD:
        return None
    found = []
    for place, one in enumerate(of.seen):
        others = [other.typical for other in (*of.seen[:place], *of.seen[place + 1 :])]
        middle, degrees = mean(others), len(others) - 1
        spread = math.sqrt(math.fsum((value - middle) ** 2 for value in others) / degrees)
        by = one.typical - middle
        odd = chance(by, spread * math.sqrt(1 + 1 / len(others)), degrees)
        if odd < ODD / len(of.seen) and abs(by) > of.at.passes:
            found.append((odd, -abs(by), one.round.number, one.typical, middle))
    if not found:
        return None
    _, _, number, value, middle = min(found)
    return f"Round {number} alone says {percent(value)}, the others {percent(middle)} in the mean."


def rare(of: Evidence) -> str | None:
    more = rare_stalls([one.values.beyond for one in of.seen], of.at)
    if more is None:
        return None
    return f"The candidate has rare and long stalls, few of which decide: counted in full they add {percent(more)}."
