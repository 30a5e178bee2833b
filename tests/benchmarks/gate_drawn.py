"""Gates put together again from live rounds: the gate's own decision on rounds drawn with replacement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from profiler.check.model import CONFIRM, MEASURE, STATES, Limits
from profiler.check.speed.round_values import RoundValues, round_values
from profiler.check.speed.sequential import CONFIRM_LOOKS, looks
from profiler.check.speed.verdict import decide, measurements
from tests.benchmarks.gate_rates import FEWEST_GATES, Rate, interval

FEWEST_CONFIRMING = 24
"""Rounds that confirm, below which those of another experiment are added."""
LENDER = "slower-5"
"""Whose they are: it has the most."""
REPLICATES, REPLICATE = 60, 250
"""Pools that are drawn to see how far the rates hang on the live rounds, and gates of each."""
TOGETHER = 5
"""Consecutive rounds that stay together: those of the shortest gate."""

Values = list[RoundValues]
Draw = Callable[[np.random.Generator], tuple[Values, Values]]


@dataclass(frozen=True)
class Pool:
    """Usable rounds of one experiment, by live gate, in their order."""

    measuring: tuple[Values, ...]
    confirming: tuple[Values, ...]
    lent: int = 0
    """Rounds that confirm which another experiment lent."""
    lost: int = 0
    """Live rounds that said nothing."""

    @property
    def rounds(self) -> int:
        return sum(map(len, self.measuring))


def pools(by_name: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Pool]:
    """Of all experiments. Those with few rounds that confirm are lent the LENDER's, with the difference of means taken
    off, line by line: an A/A gate has none unless its FAIL was suspected."""
    own = {name: _own(gates) for name, gates in by_name.items()}
    return {name: _lent(pool, own.get(LENDER)) for name, pool in own.items() if pool.rounds}


def alike(pool: Pool) -> float | None:
    """Intraclass correlation of the first rounds' typical steps, by one-way analysis of variance: 0 where rounds of a
    gate are no more alike than those of different gates."""
    values = np.array([[one.typical for one in gate[:TOGETHER]] for gate in pool.measuring if len(gate) >= TOGETHER])
    if len(values) < FEWEST_GATES:
        return None
    between = TOGETHER * values.mean(axis=1).var(ddof=1)
    within = values.var(axis=1, ddof=1).mean()
    return float((between - within) / (between + (TOGETHER - 1) * within))


def _own(gates: Sequence[Mapping[str, Any]]) -> Pool:
    values = [[(one.kind, round_values(one)) for one in gate["rounds"]] for gate in gates]
    usable = [
        [
            (kind, one)
            for kind, one in gate
            if one.typical is not None and (kind == MEASURE or one.control_typical is not None)
        ]
        for gate in values
    ]
    measuring, confirming = (
        tuple([one for of, one in gate if of == kind] for gate in usable) for kind in (MEASURE, CONFIRM)
    )
    return Pool(measuring, confirming, lost=sum(map(len, values)) - sum(map(len, usable)))


def _lent(pool: Pool, lender: Pool | None) -> Pool:
    have = sum(map(len, pool.confirming))
    if have >= FEWEST_CONFIRMING or lender is None or lender is pool:
        return pool
    ours, theirs = _means(pool.measuring), _means(lender.measuring)
    by = {name: ours[name] - theirs[name] for name in ours}
    moved = tuple(
        [replace(one, **{name: getattr(one, name) + by[name] for name in by}) for one in gate]
        for gate in lender.confirming
    )
    return replace(pool, confirming=(*pool.confirming, *moved), lent=sum(map(len, moved)))


def _means(measuring: Sequence[Values]) -> dict[str, float]:
    every = [one for gate in measuring for one in gate]
    return {name: float(np.mean([getattr(one, name) for one in every])) for name in ("typical", "all_steps", "excess")}


# ---------------------------------------------------------------- drawing


def singly(pool: Pool, limits: Limits) -> Draw:
    """Rounds one by one, as if independent; the base starts first in every other one, as in a live gate."""
    by_turn = [[one for gate in pool.measuring for one in gate[first::2]] for first in (0, 1)]
    by_turn = [some or [one for gate in pool.measuring for one in gate] for some in by_turn]
    confirming = [one for gate in pool.confirming for one in gate]

    def draw(rng: np.random.Generator) -> tuple[Values, Values]:
        picks = rng.random(limits.max_rounds + CONFIRM_LOOKS[-1])
        measured = [_pick(by_turn[place % 2], pick) for place, pick in enumerate(picks[: limits.max_rounds])]
        return measured, [_pick(confirming, pick) for pick in picks[limits.max_rounds :]] if confirming else []

    return draw


def together(pool: Pool, limits: Limits) -> Draw:
    """Rounds that followed each other stay together: runs of TOGETHER from a random place on."""
    measuring = [one for gate in pool.measuring for one in gate]
    confirming = [one for gate in pool.confirming for one in gate]

    def draw(rng: np.random.Generator) -> tuple[Values, Values]:
        return _runs(measuring, limits.max_rounds, rng), _runs(confirming, CONFIRM_LOOKS[-1], rng)

    return draw


def _pick(some: Values, pick: float) -> RoundValues:
    return some[int(pick * len(some))]


def _runs(some: Values, number: int, rng: np.random.Generator) -> Values:
    found: Values = []
    while some and len(found) < number:
        begin = int(rng.integers(len(some)))
        found += [some[(begin + place) % len(some)] for place in range(TOGETHER)]
    return found[:number]


def outcome(measured: Values, confirming: Values, limits: Limits) -> str | None:
    """The gate's verdict on these rounds, taken in its order; None: it wanted rounds to confirm, and there are none."""
    at_once = decide(measurements([(MEASURE, one) for one in measured]), limits)
    if at_once.next is None:  # no look suspects a FAIL: the same as step by step, in a fifth of the time
        return at_once.state
    places = {MEASURE: iter(looks(limits.max_rounds)), CONFIRM: iter(CONFIRM_LOOKS)}
    supply, number = {MEASURE: measured, CONFIRM: confirming}, {MEASURE: 0, CONFIRM: 0}
    wanted: str | None = MEASURE
    while wanted is not None:
        if not supply[wanted]:
            return None
        number[wanted] = next(places[wanted])
        taken = [(kind, one) for kind in (MEASURE, CONFIRM) for one in supply[kind][: number[kind]]]
        found = decide(measurements(taken), limits)
        wanted = found.next
    return found.state


def states(draw: Draw, gates: int, rng: np.random.Generator, limits: Limits) -> Counter[str]:
    """Verdicts of so many gates; those that could not end are not counted."""
    found = (outcome(*draw(rng), limits) for _ in range(gates))
    return Counter(state for state in found if state is not None)


# ---------------------------------------------------------------- rates


def rates(
    pool: Pool, way: Callable[[Pool, Limits], Draw], gates: int, rng: np.random.Generator, limits: Limits
) -> dict[str, Rate]:
    """Of each state, with an interval from pools of live gates that are drawn with replacement."""
    found = _shares(states(way(pool, limits), gates, rng, limits))
    if sum(map(bool, pool.measuring)) < FEWEST_GATES:
        return {state: Rate(share, 0.0, 1.0) for state, share in found.items()}
    drawn = []
    for _ in range(REPLICATES):
        again = replace(pool, measuring=_again(pool.measuring, rng), confirming=_again(pool.confirming, rng))
        drawn.append(_shares(states(way(again, limits), REPLICATE, rng, limits)))
    return {
        state: interval(share, _between(np.array([one[state] for one in drawn]), share), gates)
        for state, share in found.items()
    }


def _shares(of: Counter[str]) -> dict[str, float]:
    return {state: of[state] / max(of.total(), 1) for state in STATES}


def _again(gates: Sequence[Values], rng: np.random.Generator) -> tuple[Values, ...]:
    having = [gate for gate in gates if gate]
    return tuple(having[int(place)] for place in rng.integers(len(having), size=len(having))) if having else ()


def _between(shares: np.ndarray[Any, np.dtype[np.float64]], rate: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Their spread without what comes from drawing only REPLICATE gates of each pool."""
    total, inner = float(shares.var()), float((shares * (1 - shares)).mean() / REPLICATE)
    kept_share = np.sqrt(max(total - inner, 0.0) / total) if total else 0.0
    return np.asarray(rate + (shares - shares.mean()) * kept_share).clip(0, 1)
