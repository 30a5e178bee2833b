"""The sequential test of one line: one-sided bounds at fixed looks, held against two edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from profiler.check.model import FAIL, INCONCLUSIVE, PASS

LOOKS: Final = (5, 7, 10, 14, 20)
"""Rounds after which one looks; each is some 1.4 times the one before."""
GROWTH: Final = 1.4
ALPHA: Final = 0.01
"""Of one bound at one look. At the edge itself six looks are wrong in some 4%, since they share their rounds."""
SUSPICION: Final = 0.02
"""Of the bound that a FAIL is suspected by: twice that, since rounds of their own confirm it, and rounds are saved."""
POWER: Final = 0.8
"""Of what is called seen: the smallest slow-down, and the rounds that would settle it."""
FAILS_ABOVE: Final = 0.4
"""Of the slow-down to detect: surely more than this is a FAIL."""
PASSES_BELOW: Final = 0.8
"""Of the slow-down to detect: surely less than this is a PASS."""
LEAST: Final = 0.8
"""Of a round's own error: below 1 since pairs of a round are not quite independent."""
MOST_ROUNDS: Final = 1000
"""No one waits for more."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Log slow-downs that decide."""

    fails: float
    passes: float


@dataclass(frozen=True, slots=True)
class Bounds:
    mean: float
    low: float
    high: float
    """One-sided each: the truth is below `low`, or above `high`, with probability ALPHA at most."""
    error: float
    """Standard error of the mean."""
    rounds: int


def edges(detect: float) -> Edges:
    """The edges to a slow-down of which share is to be detected, as logs: a share of 1 is twice the time, ln 2."""
    return Edges(math.log1p(FAILS_ABOVE * detect), math.log1p(PASSES_BELOW * detect))


def looks(most: int) -> tuple[int, ...]:
    """After how many rounds one looks, `most` rounds being the last look; two are the least that have a spread."""
    places = list(LOOKS)
    while places[-1] < most:
        places.append(round(places[-1] * GROWTH))
    return (*(place for place in places if place < most), max(most, 2))


@cache
def quantile(degrees: int, share: float) -> float:
    """Of Student's t: scipy.special.stdtrit (Cephes)."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, share))


def bounds(values: Sequence[float], alpha: float = ALPHA, errors: Sequence[float] = ()) -> Bounds:
    """Mean and one-sided t bounds of independent rounds.

    :param errors: of single rounds, from what is inside of them: a few rounds may agree by chance, but their spread is
        not taken as less than LEAST of these.
    :raises ValueError: fewer than two values, which have no spread.
    """
    number = len(values)
    if number < 2:
        raise ValueError("a spread needs two values")
    mean = math.fsum(values) / number
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (number - 1) / number)
    if errors:
        error = max(error, LEAST * math.sqrt(math.fsum(one**2 for one in errors) / len(errors) / number))
    half = quantile(number - 1, 1 - alpha) * error
    return Bounds(mean, mean - half, mean + half, error, number)


def state(of: Bounds, at: Edges) -> str:
    """FAIL | PASS | INCONCLUSIVE."""
    if of.low > at.fails:
        return FAIL
    return PASS if of.high < at.passes else INCONCLUSIVE


def suspicion(of: Bounds, at: Edges) -> str:
    """The same at a look: a FAIL is suspected, and INCONCLUSIVE means: go on."""
    low = of.mean - quantile(of.rounds - 1, 1 - SUSPICION) * of.error
    return FAIL if low > at.fails else state(of, at)


def smallest(of: Bounds, at: Edges) -> float:
    """The log slow-down that would have failed in POWER of the gates with this spread and these rounds.

    The mean must be a bound's half-width above the edge, and falls short of the truth by its own error.
    """
    return at.fails + (quantile(of.rounds - 1, 1 - ALPHA) + quantile(of.rounds - 1, POWER)) * of.error


def more_rounds(of: Bounds, at: Edges) -> int | None:
    """Rounds after which, were mean and spread what they seem, POWER of the gates would be settled; None: too many."""
    far = max(of.mean - at.fails, at.passes - of.mean)
    spread = of.error * math.sqrt(of.rounds)
    for total in range(of.rounds + 1, MOST_ROUNDS + 1):
        reach = quantile(total - 1, 1 - ALPHA) + quantile(total - 1, POWER)
        if far >= reach * spread / math.sqrt(total):
            return total - of.rounds
    return None
