"""Error rates of the gate: its own decision on rounds that are drawn with replacement from live gates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from profiler.check.model import CONFIRM, MEASURE, STATES, Limits
from profiler.check.speed.rounds import RoundValues, round_values
from profiler.check.speed.sequential import CONFIRM_LOOKS, looks
from profiler.check.speed.verdict import Decision, decide, measurements

CONFIDENCE = 0.95
FEWEST_GATES = 5
"""With fewer gates there is no interval, because gates drawn with replacement show no spread."""
FEWEST_CONFIRMING = 24
"""An experiment with fewer confirming rounds also gets those of LENDER, which has the most."""
LENDER = "slower-5"
REPLICATES, REPLICATE = 60, 250
"""Pools that are drawn for an interval, and gates that are drawn from each."""
CONSECUTIVE = 5
"""Rounds that stay together: as many as the shortest gate has."""

Values = list[RoundValues]
Array = npt.NDArray[np.float64]


# ---------------------------------------------------------------- intervals


@dataclass(frozen=True)
class Rate:
    """A share of gates with its 95% interval, which is 0 to 1 where there are too few gates for one."""

    rate: float
    low: float = 0.0
    high: float = 1.0


def at_most(wrong: int, gates: int) -> float:
    """Clopper and Pearson's one-sided upper bound at 95%: 0 of 60 bounds the rate at 4.9%."""
    from scipy.stats import beta

    return 1.0 if wrong >= gates else float(beta.ppf(CONFIDENCE, wrong + 1, gates - wrong))


def at_least(right: int, gates: int) -> float:
    """The lower bound."""
    return 1 - at_most(gates - right, gates)


def interval(rate: float, replicates: Array, drawn: int | None = None) -> Rate:
    """A rate with percentiles of its replicates.

    :param drawn: number of gates that the rate was counted in; the interval covers at least what so few gates allow.
    """
    outer = (1 - CONFIDENCE) / 2
    low, high = np.quantile(replicates, [outer, 1 - outer]) if len(replicates) else (0.0, 1.0)
    if drawn:
        wrong = round(rate * drawn)
        low, high = min(low, at_least(wrong, drawn)), max(high, at_most(wrong, drawn))
    return Rate(rate, float(min(low, rate)), float(max(high, rate)))


# ---------------------------------------------------------------- the live rounds of an experiment


@dataclass(frozen=True)
class Pool:
    """Usable rounds of an experiment, by live gate, in their order."""

    measuring: tuple[Values, ...]
    confirming: tuple[Values, ...]
    lent: int = 0
    """Confirming rounds that come from another experiment."""
    lost: int = 0
    """Unusable live rounds."""

    @cached_property
    def rounds(self) -> Values:
        """All rounds that measure."""
        return [values for gate in self.measuring for values in gate]

    @cached_property
    def confirming_rounds(self) -> Values:
        return [values for gate in self.confirming for values in gate]

    @cached_property
    def by_start_order(self) -> tuple[Values, Values]:
        """Rounds that measure, where the base started first and where the candidate did."""
        first, second = ([values for gate in self.measuring for values in gate[start::2]] for start in (0, 1))
        return first or self.rounds, second or self.rounds


def pools(gates_by_name: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Pool]:
    """The pool of each experiment.

    One with few confirming rounds (an A/A gate has none unless a FAIL was suspected) also gets those of LENDER, shifted
    by the difference between the means of both experiments, line by line.
    """
    own = {name: _own_pool(gates) for name, gates in gates_by_name.items()}
    return {name: _with_lent_rounds(pool, own.get(LENDER)) for name, pool in own.items() if pool.rounds}


def _own_pool(gates: Sequence[Mapping[str, Any]]) -> Pool:
    pools: dict[str, list[Values]] = {MEASURE: [], CONFIRM: []}
    lost = 0
    for gate in gates:
        for kind, by_gate in pools.items():
            values = [round_values(measured) for measured in gate["rounds"] if measured.kind == kind]
            by_gate.append([value for value in values if value.typical is not None])
            lost += len(values) - len(by_gate[-1])
    return Pool(tuple(pools[MEASURE]), tuple(pools[CONFIRM]), lost=lost)


def _with_lent_rounds(pool: Pool, lender: Pool | None) -> Pool:
    if len(pool.confirming_rounds) >= FEWEST_CONFIRMING or lender is None or lender is pool:
        return pool
    ours, theirs = _means(pool), _means(lender)
    shifts = {name: ours[name] - theirs[name] for name in ours}
    shifted = tuple(
        [replace(values, **{name: getattr(values, name) + shift for name, shift in shifts.items()}) for values in gate]
        for gate in lender.confirming
    )
    return replace(pool, confirming=(*pool.confirming, *shifted), lent=sum(map(len, shifted)))


def _means(pool: Pool) -> dict[str, float]:
    lines = ("typical", "all_steps", "excess")
    return {name: float(np.mean([getattr(values, name) for values in pool.rounds])) for name in lines}


def correlation(pool: Pool) -> float | None:
    """Intraclass correlation of the typical steps of each gate's first rounds, by one-way analysis of variance: 0 where
    rounds of one gate are no more alike than those of different gates."""
    first = [gate[:CONSECUTIVE] for gate in pool.measuring if len(gate) >= CONSECUTIVE]
    if len(first) < FEWEST_GATES:
        return None
    values = np.array([[value.typical for value in gate] for gate in first])
    between = CONSECUTIVE * values.mean(axis=1).var(ddof=1)
    within = values.var(axis=1, ddof=1).mean()
    return float((between - within) / (between + (CONSECUTIVE - 1) * within))


# ---------------------------------------------------------------- drawing


Draw = Callable[[Pool, np.random.Generator, Limits], tuple[Values, Values]]
"""Draws the measuring and the confirming rounds of a gate."""


def singly(pool: Pool, rng: np.random.Generator, limits: Limits) -> tuple[Values, Values]:
    """Independent rounds; as in a live gate, the base starts first in every other one."""
    picks = rng.random(limits.max_rounds + CONFIRM_LOOKS[-1])
    measuring = [_pick(pool.by_start_order[n % 2], pick) for n, pick in enumerate(picks[: limits.max_rounds])]
    confirming = pool.confirming_rounds
    return measuring, [_pick(confirming, pick) for pick in picks[limits.max_rounds :]] if confirming else []


def together(pool: Pool, rng: np.random.Generator, limits: Limits) -> tuple[Values, Values]:
    """Runs of CONSECUTIVE live rounds, each from a random round on."""
    return _runs(pool.rounds, limits.max_rounds, rng), _runs(pool.confirming_rounds, CONFIRM_LOOKS[-1], rng)


def _pick(values: Values, pick: float) -> RoundValues:
    return values[int(pick * len(values))]


def _runs(values: Values, number: int, rng: np.random.Generator) -> Values:
    drawn: Values = []
    while values and len(drawn) < number:
        begin = int(rng.integers(len(values)))
        drawn += [values[(begin + offset) % len(values)] for offset in range(CONSECUTIVE)]
    return drawn[:number]


def outcome(measuring: Values, confirming: Values, limits: Limits) -> str | None:
    """The gate's verdict on these rounds in their order; it is None if confirming rounds are needed and missing."""
    at_once = decide(measurements([(MEASURE, values) for values in measuring]), limits)
    if at_once.next is None:  # no look suspects a FAIL: the same as step by step, in a fifth of the time
        return at_once.state
    decision, _ = step_by_step(measuring, lambda _: confirming, limits)
    return decision.state


def step_by_step(
    measuring: Values, confirming: Callable[[int], Values], limits: Limits
) -> tuple[Decision, Counter[str]]:
    """Decide at each look until the gate ends; returns the decision and the number of rounds by kind.

    :param confirming: returns the confirming rounds that follow a number of measuring rounds.
    """
    for look in looks(limits.max_rounds):
        rounds = [(MEASURE, values) for values in measuring[:look]]
        decision, confirmed = decide(measurements(rounds), limits), 0
        if decision.next == CONFIRM and (values := confirming(look)):
            for confirmed in CONFIRM_LOOKS:
                more = [(CONFIRM, value) for value in values[:confirmed]]
                decision = decide(measurements([*rounds, *more]), limits)
                if decision.next is None:
                    break
        if decision.next != MEASURE:
            break
    return decision, Counter({MEASURE: look, CONFIRM: confirmed})


def shares(pool: Pool, draw: Draw, gates: int, rng: np.random.Generator, limits: Limits) -> dict[str, float]:
    """Share of each verdict among drawn gates; gates that could not end are left out."""
    verdicts = Counter(outcome(*draw(pool, rng, limits), limits) for _ in range(gates))
    return {state: verdicts[state] / max(sum(verdicts[state] for state in STATES), 1) for state in STATES}


def rates(pool: Pool, draw: Draw, gates: int, rng: np.random.Generator, limits: Limits) -> dict[str, Rate]:
    """The rate of each verdict, with an interval from pools in which whole live gates are drawn with replacement."""
    estimates = shares(pool, draw, gates, rng, limits)
    if sum(map(bool, pool.measuring)) < FEWEST_GATES:
        return {state: Rate(share) for state, share in estimates.items()}
    replicates = []
    for _ in range(REPLICATES):
        resampled = replace(
            pool, measuring=_resampled(pool.measuring, rng), confirming=_resampled(pool.confirming, rng)
        )
        replicates.append(shares(resampled, draw, REPLICATE, rng, limits))
    return {
        state: interval(share, _between_pools(np.array([one[state] for one in replicates]), share), gates)
        for state, share in estimates.items()
    }


def _resampled(gates: Sequence[Values], rng: np.random.Generator) -> tuple[Values, ...]:
    filled = [gate for gate in gates if gate]
    return tuple(filled[int(index)] for index in rng.integers(len(filled), size=len(filled))) if filled else ()


def _between_pools(replicates: Array, rate: float) -> Array:
    """Their spread around the rate, without what comes from drawing only REPLICATE gates of each pool."""
    total, inner = float(replicates.var()), float((replicates * (1 - replicates)).mean() / REPLICATE)
    scale = np.sqrt(max(total - inner, 0.0) / total) if total else 0.0
    return np.asarray(rate + (replicates - replicates.mean()) * scale).clip(0, 1)
