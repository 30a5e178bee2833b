"""Tests one series sequentially: one-sided bounds are compared with two thresholds (edges) after fixed numbers of
rounds (looks), and a suspected FAIL is confirmed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Final, NamedTuple

from profiler.check.model import FAIL, INCONCLUSIVE, LOOKS, PASS, POWER

GROWTH: Final = 1.4
ALPHA: Final = 0.01
"""Error of one bound at one look. If the slow-down equals an edge, the eight looks of the default 28 rounds decide
wrongly in 3% of the checks (simulated; 8% if processes differ by twice LUCK): they are correlated, since they share
rounds."""
SUSPICION: Final = 0.02
"""Error of the bound by which a FAIL is suspected: twice ALPHA saves rounds, and separate rounds confirm the FAIL."""
FAILS_ABOVE: Final = 0.4
"""Share of the slow-down to detect: a slow-down that is surely larger than this is a FAIL."""
PASSES_BELOW: Final = 0.8
"""Share of the slow-down to detect: a slow-down that is surely smaller than this is a PASS."""
LUCK: Final = 0.01
"""What the luck of fresh processes (their memory layout) adds to the error of a round: a standard deviation, as a log.
It is a choice, larger than what the recorded rounds differ beyond their errors, which is not distinguishable from 0."""
PRIOR: Final = 4
"""Degrees of freedom that the errors of the rounds are worth, as an estimate of how much rounds differ. It is a choice:
so few that rounds which differ more are soon believed."""
MAX_ROUNDS: Final = 1000
"""No number of rounds above this is suggested."""

CONFIRM_LOOKS: Final = (2, 3, 5, 8)
"""Numbers of confirming rounds after which the confirmation may decide; the last one decides."""
CONFIRM_ALPHA: Final = 0.2
"""Error of the confirming rounds by themselves: they are a second, independent hurdle behind the first. At 0.15, fewer
stalls were confirmed (docs/log.md)."""

STALLS_ALPHA: Final = 0.005
"""Two-sided error of the test for rare stalls: there are few of them, so it is less strict than other diagnostics."""
DOUBT_ALPHA: Final = 0.2
"""The same for a doubt: while stalls may be more than chance, all steps do not pass unless they do with stalls in full.
Similar stalls in two rounds raise it whatever the number of rounds, and a stall in one round never does."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Log slow-downs that decide."""

    fails: float
    passes: float


class Estimate(NamedTuple):
    """A log slow-down that one round measured."""

    value: float
    error: float
    """Standard error, from the pairs within the round."""
    noise: float
    """Standard error of the typical step, which stalls hardly affect. By chance, a round with more stalls than others
    has a larger value and a larger error: weighted by that error, it would count too little."""


@dataclass(frozen=True, slots=True)
class Bounds:
    mean: float
    low: float
    high: float
    """Two one-sided bounds: the true value is below `low` with probability ALPHA at most, and likewise above `high`."""
    error: float
    """Standard error of the mean."""
    rounds: int

    def reach(self, share: float) -> float:
        """Return how far the quantile `share` of the mean is above it."""
        return quantile(self.rounds - 1 + PRIOR, share) * self.error


def edges(detect: float) -> Edges:
    """Return the edges for a slow-down to detect, given as a share, as logs: a share of 1 is twice the time, ln 2."""
    return Edges(math.log1p(FAILS_ABOVE * detect), math.log1p(PASSES_BELOW * detect))


def looks(max_rounds: int) -> tuple[int, ...]:
    """Return the numbers of rounds after which the test may decide; the last is `max_rounds`, and at least the first of
    LOOKS."""
    numbers = list(LOOKS)
    while numbers[-1] < max_rounds:
        numbers.append(round(numbers[-1] * GROWTH))
    return (*(number for number in numbers if number < max_rounds), max(max_rounds, LOOKS[0]))


@cache
def quantile(degrees: int, share: float) -> float:
    """Return quantile of Student's t: scipy.special.stdtrit (Cephes)."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, share))


def bounds(rounds: Sequence[Estimate], alpha: float = ALPHA) -> Bounds:
    """Return weighted mean and one-sided t bounds of independent rounds.

    A noisy round counts less. How much rounds differ is estimated from their values and, as by PRIOR more degrees of
    freedom, from their errors and LUCK: a moderated t (Smyth 2004, "Linear Models and Empirical Bayes Methods"). So
    rounds that differ more than their errors explain widen the bounds, and a few that agree by chance decide nothing.

    :raises ValueError: fewer than two rounds, which have no spread.
    """
    if len(rounds) < 2:
        raise ValueError("a spread needs two values")
    stalls = max(0.0, fmean(one.error**2 - one.noise**2 for one in rounds))
    weights = [1 / (one.noise**2 + stalls + LUCK**2) for one in rounds]
    total = math.fsum(weights)
    mean = math.fsum(weight * one.value for weight, one in zip(weights, rounds, strict=True)) / total
    squares = math.fsum(weight * (one.value - mean) ** 2 for weight, one in zip(weights, rounds, strict=True))
    scale = (PRIOR + squares) / (PRIOR + len(rounds) - 1)
    of = Bounds(mean, mean, mean, math.sqrt(scale / total), len(rounds))
    half = of.reach(1 - alpha)
    return replace(of, low=mean - half, high=mean + half)


def state(bounds: Bounds, edges: Edges) -> str:
    """Return FAIL | PASS | INCONCLUSIVE."""
    if bounds.low > edges.fails:
        return FAIL
    return PASS if bounds.high < edges.passes else INCONCLUSIVE


def suspicion(bounds: Bounds, edges: Edges) -> str:
    """Return the state at a look: a FAIL is only suspected, and INCONCLUSIVE asks for more rounds."""
    low = bounds.mean - bounds.reach(1 - SUSPICION)
    return FAIL if low > edges.fails else state(bounds, edges)


def smallest(bounds: Bounds, edges: Edges) -> float:
    """Return the log slow-down that would have failed with probability POWER, with this spread and this number of
    rounds.

    The mean must be a bound's half-width above the edge, and falls short of the truth by its own error.
    """
    return edges.fails + bounds.reach(1 - ALPHA) + bounds.reach(POWER)


def more_rounds(bounds: Bounds, edges: Edges) -> int | None:
    """Return rounds that would settle it with probability POWER if mean and spread are what they seem; None: too
    many."""
    distance = max(bounds.mean - edges.fails, edges.passes - bounds.mean)
    for total in range(bounds.rounds + 1, MAX_ROUNDS + 1):
        then = replace(bounds, rounds=total, error=bounds.error * math.sqrt(bounds.rounds / total))
        if distance >= then.reach(1 - ALPHA) + then.reach(POWER):
            return total - bounds.rounds
    return None


# ---------------------------------------------------------------- confirmation of a FAIL


def confirmed(
    suspecting: Sequence[Estimate], confirming: Sequence[Estimate], edges: Edges, *, final: bool = False
) -> bool | None:
    """Return whether fresh rounds, which start the programs in the other order, confirm a suspected FAIL.

    They do where they are above the edge by themselves, and all rounds together are. None: another round must be
    measured.

    :param suspecting: the rounds by which the FAIL is suspected.
    :param final: there will be no more rounds, so the rounds so far may be looked at once more.
    """
    reached = {look for look in CONFIRM_LOOKS if look <= len(confirming)}
    if final and CONFIRM_LOOKS[0] < len(confirming) < CONFIRM_LOOKS[-1]:
        reached.add(len(confirming))
    for look in sorted(reached):
        rounds = confirming[:look]
        if min(bounds(rounds, CONFIRM_ALPHA).low, bounds([*suspecting, *rounds]).low) > edges.fails:
            return True
    return False if len(confirming) >= CONFIRM_LOOKS[-1] else None


# ---------------------------------------------------------------- differences from zero


def p_value(difference: float, error: float, degrees: int) -> float:
    """Return two-sided p of Student's t (scipy.special.stdtr, Cephes); 0 for a difference without any error."""
    from scipy.special import stdtr

    if error <= 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * stdtr(degrees, -abs(difference) / error))


def mean_test(values: Sequence[float]) -> tuple[float, float]:
    """Return mean, and its p against 0; fewer than three values give p = 1."""
    if len(values) < 3:
        return (fmean(values) if values else 0.0), 1.0
    mean = fmean(values)
    square = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, p_value(mean, math.sqrt(square / len(values)), len(values) - 1)


def rare_stalls(excess: Sequence[float], edges: Edges, alpha: float = STALLS_ALPHA) -> float | None:
    """Return the additional slow-down of the candidate if its rare, long stalls count in full.

    The line of all steps caps each stall at a part of a step. None: the rest is not more than chance, or little.

    :param excess: log ratio of the sums minus that of all steps with capped stalls, one a round.
    :param alpha: two-sided error of the test.
    """
    mean, p = mean_test(excess)
    return mean if p < alpha and mean > edges.fails else None
