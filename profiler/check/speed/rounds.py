"""Makes the values of a round out of its blocks, and those of steps that are rare and long."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from profiler.check.model import BASE, CANDIDATE, FAIL, PASS, Limits, Round, StepBlock, TimeLine
from profiler.check.speed import sequential
from profiler.check.speed.sequential import Estimate

MIN_PAIRS: Final = 4
"""A round with fewer pairs measures nothing."""
CAP: Final = 0.6
"""The most that a stall counts, in multiples of a usual step. Stalls of +50% must
stay visible, so it is above that; it is small, since the noise of the result grows with it (docs/log.md)."""
HEADROOM: Final = 0.05
"""Least allowance above the usual time of a block, as a share of it: a block of many steps contains many stalls."""
NEIGHBOURS: Final = 3
"""Pairs on each side whose median is the usual time at that moment: some seconds of blocks."""

MEDIAN_ERROR: Final = 1.2533 * 1.4826
"""sqrt(pi / 2), of a median against a mean, times 1 / 0.6745, of a normal's sd against its MAD."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Time for a unit of work (ns a token, or ns a step), pair by pair, in the order of time."""

    base: Array
    candidate: Array
    candidate_first: npt.NDArray[np.bool_]
    """Whether the candidate's block came before the base's."""
    steps: float
    """Median steps of a block."""
    by_tokens: bool

    def __len__(self) -> int:
        return len(self.base)


def block_pairs(measured: Round) -> Pairs:
    """Return pairs of neighbouring blocks of the base and the candidate, each block in one pair at most.

    Work is counted in tokens where every block of both sides reports them, and in steps otherwise. Blocks without a
    step are left out, and so is a block whose partner is missing, or one of another side.
    """
    sides = {BASE, CANDIDATE}
    blocks = [block for block in measured.blocks if block.side in sides and block.steps and block.time > 0]
    by_tokens = bool(blocks) and all(block.tokens > 0 for block in blocks)
    pairs = list(_neighbours(blocks))
    candidate_first = [first.side == CANDIDATE for first, _ in pairs]
    times = [[block.time / (block.tokens if by_tokens else len(block.steps)) for block in pair] for pair in pairs]
    return Pairs(
        np.array([time[first] for time, first in zip(times, candidate_first, strict=True)], np.float64),
        np.array([time[not first] for time, first in zip(times, candidate_first, strict=True)], np.float64),
        np.array(candidate_first, np.bool_),
        float(np.median([len(block.steps) for block in blocks])) if blocks else 0.0,
        by_tokens,
    )


def _neighbours(blocks: list[StepBlock]) -> Iterator[tuple[StepBlock, StepBlock]]:
    index = 0
    while index + 1 < len(blocks):
        if blocks[index].side == blocks[index + 1].side:
            index += 1  # its partner is missing
            continue
        yield blocks[index], blocks[index + 1]
        index += 2


@dataclass(frozen=True, slots=True)
class RoundValues:
    """Log slow-downs of a round: ln(base's work a second / candidate's work a second). None: too few pairs."""

    typical: float | None
    all_steps: float | None
    typical_error: float = 0.0
    """Standard error of the value, from the pairs of this round alone: without the differences between
    program starts."""
    all_steps_error: float = 0.0
    excess: float = 0.0
    """How much longer the candidate takes where stalls are not capped: log ratio of the sums, less `all_steps`."""


def round_values(measured: Round) -> RoundValues:
    """Return both measures of a round."""
    pairs = block_pairs(measured)
    if len(pairs) < MIN_PAIRS:
        return RoundValues(None, None)
    typical, typical_error = typical_step(pairs.base, pairs.candidate)
    every, every_error = all_steps(pairs.base, pairs.candidate, pairs.steps)
    return RoundValues(
        float(typical),
        float(every),
        float(typical_error),
        float(every_error),
        excess=float(np.log(pairs.candidate.sum() / pairs.base.sum())) - float(every),
    )


def typical_step(base: Array, candidate: Array) -> tuple[Array, Array]:
    """Return median over pairs (last axis) of ln(candidate's time / base's time), which rare stalls hardly affect, and
    its standard error.

    The standard error takes the pairs as independent and their middle half as normal: MEDIAN_ERROR times their MAD.
    """
    logs = np.log(candidate / base)
    median = np.median(logs, axis=-1)
    deviation = np.median(np.abs(logs - median[..., np.newaxis]), axis=-1)
    return np.asarray(median), np.asarray(MEDIAN_ERROR * deviation / math.sqrt(logs.shape[-1]))


def all_steps(base: Array, candidate: Array, steps: float) -> tuple[Array, Array]:
    """Return the log ratio of all steps, where no block counts more than a stall of CAP above its usual time.

    It is the typical step's slow-down plus how much more the candidate's blocks exceed their usual time than the
    base's do. Without the cap it would be the ratio of sums, whose noise is several times as great. The second value
    is its standard error, which takes the pairs as independent.

    :param base: time for a unit of work, pairs along the last axis, in the order of time.
    :param steps: median number of steps of a block.
    """
    slowdown, _ = typical_step(base, candidate)
    log_candidate = np.log(candidate) - slowdown[..., np.newaxis]  # at the speed of the base
    usual = np.exp(_running_median(np.log(base), log_candidate))
    cap = 1 + CAP / max(steps, 1.0) + HEADROOM
    base_share = np.minimum(base / usual, cap)
    candidate_share = np.minimum(np.exp(log_candidate) / usual, cap)
    error = (candidate_share - base_share).std(axis=-1, ddof=1) / math.sqrt(base.shape[-1])
    return np.asarray(slowdown + np.log(candidate_share.mean(axis=-1) / base_share.mean(axis=-1))), np.asarray(error)


def _running_median(base: Array, candidate: Array) -> Array:
    """Return median of both sides' blocks over NEIGHBOURS pairs to each side; near an end over the same number of
    pairs."""
    pairs = base.shape[-1]
    both = np.stack([base, candidate], axis=-1)
    width = min(2 * NEIGHBOURS + 1, pairs)
    usual = np.empty_like(base)
    for pair in range(pairs):
        begin = min(max(0, pair - NEIGHBOURS), pairs - width)
        window = both[..., begin : begin + width, :]
        usual[..., pair] = np.median(window.reshape(*window.shape[:-2], -1), axis=-1)
    return usual


# ---------------------------------------------------------------- steps that are rare and long

RARE_STEPS: Final = "all steps, rare ones too"
LONG: Final = 5.0
"""A step that takes so many times as long as the typical one is a long one."""
STEPS: Final = 3_000
"""Steps of each side in such a round, unless its time is over."""
SECONDS: Final = 30.0
"""Time of such a round without the start of the programs, and no longer than the rounds before took together."""
ROUNDS: Final = 3
"""Rounds of it where the first one shows that long steps cost more."""
ERROR: Final = 0.15
"""Standard error of the log of the time of one long step: what steps of half a second have on a shared machine."""


class RareSteps(NamedTuple):
    """What long steps add to the time of one side, in multiples of its usual time."""

    steps: int
    number: int
    """How many were long."""
    added: float
    error: float

    @classmethod
    def of(cls, blocks: Sequence[StepBlock], side: str) -> RareSteps:
        """Return the long steps of a side."""
        times = [step for block in blocks if block.side == side for step in block.steps]
        usual = median(times) if times else 1
        long = [time / usual - 1 for time in times if time > LONG * usual]
        steps = max(1, len(times))
        return cls(len(times), len(long), sum(long) / steps, ERROR * math.hypot(*long) / steps)


def rare_steps(measure: Callable[[int], Round], limits: Limits) -> tuple[int, TimeLine | None]:
    """Return how many steps of each side were seen, and the line of the verdict about those that are long; None: none
    was.

    One round is enough if they cost the candidate no more than what passes. Otherwise further rounds decide: FAIL if it
    is certain that they cost more, else PASS with the bounds.

    :param measure: runs the round of this number.
    """
    estimates: list[Estimate] = []
    steps, edges = 0, sequential.edges(limits.detect)
    for number in range(1, ROUNDS + 1):
        blocks = measure(number).blocks
        base, candidate = (RareSteps.of(blocks, side) for side in (BASE, CANDIDATE))
        steps = max(steps, min(base.steps, candidate.steps))
        if not base.number and not candidate.number and number == 1:
            return steps, None
        slowdown = math.log1p(candidate.added) - math.log1p(base.added)
        error = math.hypot(base.error, candidate.error)
        estimates.append(Estimate(slowdown, error, error))
        if number == 1 and slowdown <= edges.fails:
            return steps, TimeLine(RARE_STEPS, PASS, slowdown, None, None, 1, None)
    found = sequential.bounds(estimates)
    state = FAIL if found.low > edges.fails else PASS
    smallest = sequential.smallest(found, edges)
    return steps, TimeLine(RARE_STEPS, state, found.mean, found.low, found.high, found.rounds, smallest)
