"""Error rates with their uncertainty: exact binomial bounds of live gates, and a bootstrap over gates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.benchmarks.gate_feeds import Counts, Found

CONFIDENCE = 0.95
REPLICATES = 400
FEWEST_GATES = 5
"""Below which drawing whole gates shows no spread: nothing is said of it."""


@dataclass(frozen=True)
class Rate:
    """A share of gates, and its 95% interval; 0 to 1 where there are too few gates for one."""

    rate: float
    low: float
    high: float


def at_most(wrong: int, gates: int) -> float:
    """Clopper-Pearson's one-sided upper bound at 95%: 0 of 60 bounds the rate at 4.9%."""
    from scipy.stats import beta

    return 1.0 if wrong >= gates else float(beta.ppf(CONFIDENCE, wrong + 1, gates - wrong))


def at_least(right: int, gates: int) -> float:
    """The lower bound."""
    return 1 - at_most(gates - right, gates)


def of_found(found: Found, rng: np.random.Generator) -> Rate:
    """The rate of a rule, whole gates drawn with replacement, since rounds of a gate share their minutes."""
    weights = _weights(len(found.fed), rng)
    failed = np.einsum("bi,ij,bj->b", weights, found.failed, weights)
    fed = np.einsum("bi,ij,bj->b", weights, found.fed, weights)
    gates = gates_in(found.fed)
    if gates < FEWEST_GATES:
        return Rate(found.rate, 0.0, 1.0)
    if found.rate in {0.0, 1.0}:  # no replicate differs: what so many gates bound
        return Rate(found.rate, 0.0, at_most(0, gates)) if not found.rate else Rate(1.0, at_least(gates, gates), 1.0)
    return interval(found.rate, failed[fed > 0] / fed[fed > 0])


def _weights(gates: int, rng: np.random.Generator) -> Counts:
    """How often each gate is drawn, in each replicate."""
    return rng.multinomial(gates, np.full(gates, 1 / gates), size=REPLICATES).astype(np.float64)


def gates_in(fed: Counts) -> int:
    """That have any row."""
    return int(np.count_nonzero(fed.sum(axis=0) + fed.sum(axis=1)))


def interval(rate: float, replicates: Counts, drawn: int | None = None) -> Rate:
    """Percentiles of replicates.

    :param drawn: gates that the rate was counted in, whose own chance is the least that the interval covers.
    """
    outer = (1 - CONFIDENCE) / 2
    low, high = np.quantile(replicates, [outer, 1 - outer]) if len(replicates) else (0.0, 1.0)
    if drawn:
        wrong = round(rate * drawn)
        low, high = min(low, at_least(wrong, drawn)), max(high, at_most(wrong, drawn))
    return Rate(rate, float(min(low, rate)), float(max(high, rate)))
