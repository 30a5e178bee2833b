"""Made-up rounds: two programs in alternating blocks on a noisy machine, with known differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler.check.model import BASE, CANDIDATE, CONFIRM, MEASURE, Conditions, Limits, Round, StepBlock
from profiler.check.speed.verdict import next_kind

STEP_NS = 50_000_000
DEFAULT = Limits()
QUIET = Conditions(load=0.1, steal=0.001, cores=2)


@dataclass(frozen=True)
class Made:
    """How the sides differ. Differences are logs."""

    slower: float = 0.0
    core: float = 0.03
    """Noise of a step, sd."""
    luck: float = 0.01
    """Of a pair of programs, sd."""
    outliers: float = 0.02
    """Share of steps that take 1.5 times as long."""
    every: int = 0
    """A stall of the candidate every so many steps ..."""
    stall: float = 0.5
    """... of so many times a step."""
    pairs: int = 24
    steps: int = 2
    second_slot: float = 0.0
    """How much slower a program is that was started second."""
    second_block: float = 0.0
    """How much slower the second block of a pair is."""
    tokens: Mapping[str, int] | None = None
    """Of a step, by side."""


def a_round(number: int, kind: str = MEASURE, made: Made = Made(), seed: int = 0) -> Round:
    """One round; the same seed and number give the same one."""
    rng = np.random.default_rng([seed, number])
    sides = (BASE, CANDIDATE)
    swapped = (number % 2 == 0) != (kind == CONFIRM)
    slots = (CANDIDATE, BASE) if swapped else sides
    speed = {side: float(rng.normal(0, made.luck / 2**0.5)) for side in sides}
    speed[CANDIDATE] += made.slower
    speed[slots[1]] += made.second_slot
    phase, done, begin, blocks = int(rng.integers(made.every or 1)), 0, 0, []
    for place, side in enumerate(_order(rng, sides, made.pairs)):
        log = speed[side] + made.second_block * (place % len(sides) == 1)
        times = np.exp(log + made.core * rng.normal(size=made.steps)) * (
            1 + 0.5 * (rng.random(made.steps) < made.outliers)
        )
        if side == CANDIDATE and made.every:
            times *= np.where((np.arange(done, done + made.steps) + phase) % made.every == 0, 1 + made.stall, 1.0)
            done += made.steps
        steps = tuple(int(time * STEP_NS) for time in times)
        blocks.append(StepBlock(side, begin, steps, (made.tokens or {}).get(side, 0) * made.steps))
        begin += sum(steps)
    return Round(number, kind, slots, tuple(blocks), 6.0, QUIET)


def _order(rng: np.random.Generator, sides: Sequence[str], pairs: int) -> list[str]:
    order: list[str] = []
    while len(order) < pairs * len(sides):
        block = [sides[place] for place in rng.permutation(len(sides))]
        order += [*block, *reversed(block)]
    return order[: pairs * len(sides)]


def some(number: int, made: Made = Made(), seed: int = 0, first: int = 1) -> list[Round]:
    """Rounds that measure."""
    return [a_round(first + place, MEASURE, made, seed) for place in range(number)]


def gate(made: Made | Callable[[int], Made], limits: Limits = DEFAULT, seed: int = 0) -> list[Round]:
    """Rounds as the gate asks for them, until it is decided.

    :param made: of all rounds, or by the number of the round.
    """
    rounds: list[Round] = []
    while kind := next_kind(rounds, limits):
        number = len(rounds) + 1
        rounds.append(a_round(number, kind, made(number) if callable(made) else made, seed))
    return rounds


def exact(*values: float, kind: str = MEASURE) -> list[Round]:
    """Rounds without noise inside, each with the log slow-down that is given."""
    still = Made(core=0.0, luck=0.0, outliers=0.0)
    return [a_round(place + 1, kind, replace(still, slower=value)) for place, value in enumerate(values)]
