"""Tests one series sequentially: one-sided bounds are compared with two thresholds (edges) after fixed numbers of
rounds (looks), and a suspected FAIL is confirmed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Final

from profiler.check.model import FAIL, INCONCLUSIVE, LOOKS, PASS, POWER

GROWTH: Final = 1.4
ALPHA: Final = 0.01
"""Error of one bound at one look. If the slow-down equals an edge, the six looks of the default 28 rounds decide
wrongly in about 4% of the checks: they are correlated, since they share rounds."""
SUSPICION: Final = 0.02
"""Error of the bound by which a FAIL is suspected: twice ALPHA saves rounds, and separate rounds confirm the FAIL."""
FAILS_ABOVE: Final = 0.4
"""Share of the slow-down to detect: a slow-down that is surely larger than this is a FAIL."""
PASSES_BELOW: Final = 0.8
"""Share of the slow-down to detect: a slow-down that is surely smaller than this is a PASS."""
MIN_ERROR: Final = 0.8
"""The standard error of the mean is never taken as less than this share of the error that the pairs within the
rounds imply. It is below 1 because the latter is an estimate that supposes independent pairs, and may be too large."""
MAX_ROUNDS: Final = 1000
"""No number of rounds above this is suggested."""

CONFIRM_LOOKS: Final = (2, 3, 5, 8)
"""Numbers of confirming rounds after which the confirmation may decide; the last one decides."""
CONFIRM_ALPHA: Final = 0.15
"""Error of the confirming rounds by themselves: they are a second, independent hurdle behind the first."""
DISTRUST_ALPHA: Final = 0.2
"""Error of the test of the base against itself: where it measures a slow-down, the method is distrusted early."""

STALLS_ALPHA: Final = 0.005
"""Two-sided error of the test for rare stalls: there are few of them, so it is less strict than other diagnostics."""


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
    """Two one-sided bounds: the true value is below `low` with probability ALPHA at most, and likewise above `high`."""
    error: float
    """Standard error of the mean."""
    rounds: int


def edges(detect: float) -> Edges:
    """The edges for a slow-down to detect, given as a share, as logs: a share of 1 is twice the time, ln 2."""
    return Edges(math.log1p(FAILS_ABOVE * detect), math.log1p(PASSES_BELOW * detect))


def looks(max_rounds: int) -> tuple[int, ...]:
    """Numbers of rounds after which the test may decide; the last is `max_rounds`, and at least 2, since one value has
    no variance."""
    numbers = list(LOOKS)
    while numbers[-1] < max_rounds:
        numbers.append(round(numbers[-1] * GROWTH))
    return (*(number for number in numbers if number < max_rounds), max(max_rounds, 2))


@cache
def quantile(degrees: int, share: float) -> float:
    """Quantile of Student's t: scipy.special.stdtrit (Cephes)."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, share))


def bounds(values: Sequence[float], alpha: float = ALPHA, errors: Sequence[float] = ()) -> Bounds:
    """Mean and one-sided t bounds of independent rounds.

    :param errors: of single rounds, estimated within each: a few rounds may agree by chance, so their spread is taken
        as at least MIN_ERROR of these.
    :raises ValueError: fewer than two values, which have no spread.
    """
    number = len(values)
    if number < 2:
        raise ValueError("a spread needs two values")
    mean = fmean(values)
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (number - 1) / number)
    if errors:
        error = max(error, MIN_ERROR * math.sqrt(fmean(error**2 for error in errors) / number))
    half = quantile(number - 1, 1 - alpha) * error
    return Bounds(mean, mean - half, mean + half, error, number)


def state(bounds: Bounds, edges: Edges) -> str:
    """FAIL | PASS | INCONCLUSIVE."""
    if bounds.low > edges.fails:
        return FAIL
    return PASS if bounds.high < edges.passes else INCONCLUSIVE


def suspicion(bounds: Bounds, edges: Edges) -> str:
    """The state at a look: a FAIL is only suspected, and INCONCLUSIVE asks for more rounds."""
    low = bounds.mean - quantile(bounds.rounds - 1, 1 - SUSPICION) * bounds.error
    return FAIL if low > edges.fails else state(bounds, edges)


def smallest(bounds: Bounds, edges: Edges) -> float:
    """The log slow-down that would have failed with probability POWER, with this spread and this number of rounds.

    The mean must be a bound's half-width above the edge, and falls short of the truth by its own error.
    """
    reach = quantile(bounds.rounds - 1, 1 - ALPHA) + quantile(bounds.rounds - 1, POWER)
    return edges.fails + reach * bounds.error


def more_rounds(bounds: Bounds, edges: Edges) -> int | None:
    """Rounds that would settle it with probability POWER if mean and spread are what they seem; None: too many."""
    distance = max(bounds.mean - edges.fails, edges.passes - bounds.mean)
    spread = bounds.error * math.sqrt(bounds.rounds)
    for total in range(bounds.rounds + 1, MAX_ROUNDS + 1):
        reach = quantile(total - 1, 1 - ALPHA) + quantile(total - 1, POWER)
        if distance >= reach * spread / math.sqrt(total):
            return total - bounds.rounds
    return None


# ---------------------------------------------------------------- confirmation of a FAIL

Confirming = tuple[float, float | None]
"""Log slow-downs of the candidate and of the second copy of the base in a round. None: the copy took too few blocks."""


def confirmed(
    suspecting: Sequence[float],
    confirming: Sequence[Confirming],
    edges: Edges,
    *,
    errors: Sequence[float] = (),
    final: bool = False,
) -> bool | None:
    """Whether fresh rounds confirm a suspected FAIL. They start the programs in the other order, and the base twice.

    They do where three things hold: the confirming rounds are above the edge by themselves, all rounds together are,
    and the copy of the base is not. None: another round must be measured.

    :param suspecting: values of the rounds by which the FAIL is suspected.
    :param errors: of single rounds, see `bounds`.
    :param final: there will be no more rounds, so the rounds so far may be looked at once more.
    """
    reached = {look for look in CONFIRM_LOOKS if look <= len(confirming)}
    if final and CONFIRM_LOOKS[0] < len(confirming) < CONFIRM_LOOKS[-1]:
        reached.add(len(confirming))
    for look in sorted(reached):
        rounds = confirming[:look]
        copy = [copy for _, copy in rounds if copy is not None]
        if len(copy) < look or bounds(copy, DISTRUST_ALPHA).low > edges.fails:
            continue  # a later look may have a copy that is not slower
        alone = bounds([relative_to_both(*values) for values in rounds], CONFIRM_ALPHA)
        together = bounds([*suspecting, *(candidate for candidate, _ in rounds)], errors=errors)
        if alone.low > edges.fails and together.low > edges.fails:
            return True
    return False if len(confirming) >= CONFIRM_LOOKS[-1] else None


def relative_to_both(candidate: float, base_again: float | None) -> float:
    """The candidate relative to the mean of the base and its second copy, which averages out the differences between
    program starts."""
    return candidate - (base_again or 0.0) / 2


# ---------------------------------------------------------------- differences from zero


def p_value(difference: float, error: float, degrees: int) -> float:
    """Two-sided p of Student's t (scipy.special.stdtr, Cephes); 0 for a difference without any error."""
    from scipy.special import stdtr

    if error <= 0:
        return 1.0 if difference == 0 else 0.0
    return float(2 * stdtr(degrees, -abs(difference) / error))


def mean_test(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and its p against 0; fewer than three values give p = 1."""
    if len(values) < 3:
        return (fmean(values) if values else 0.0), 1.0
    mean = fmean(values)
    square = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, p_value(mean, math.sqrt(square / len(values)), len(values) - 1)


def rare_stalls(excess: Sequence[float], edges: Edges) -> float | None:
    """The additional slow-down of the candidate if its rare, long stalls count in full.

    The line of all steps caps each stall at a part of a step. None: the rest is not more than chance, or little.

    :param excess: log ratio of the sums minus that of all steps with capped stalls, one a round.
    """
    mean, p = mean_test(excess)
    return mean if p < STALLS_ALPHA and mean > edges.fails else None
