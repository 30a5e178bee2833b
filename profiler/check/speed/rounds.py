"""Makes the values of a round out of its blocks, and those of steps that are rare and long."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from profiler.check.model import BASE, CANDIDATE, FAIL, PASS, Conditions, Limits, Round, StepBlock, TimeLine
from profiler.check.speed import sequential
from profiler.check.speed.sequential import Estimate
from profiler.core.errors import Notice

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


# ---------------------------------------------------------------- how much faster the candidate is

NARROW: Final = 0.06
"""Half width of the interval of a log gain at which no further round is measured: 6%."""
WIDE: Final = math.log(2) / 2
"""Half width from which a gain says nothing: its ends differ by a factor of two. A choice."""
MIN_STARTS: Final = 3
"""Rounds that are measured where the time allows it: each starts both programs anew."""
PLANNED: Final = 0.75
"""Part of the time limit that is planned for: blocks may take longer than expected, and programs have to be ended."""
MORE_S: Final = 300.0
"""Further time of which is told what it would give."""
_WAITS: Final = 1 / 30
"""Part of the time limit for which each round waits for a quiet moment: 10 s of 5 minutes."""
_SIDE_ERROR: Final = 0.025
"""Error of each end of a 95% interval."""
_START_ERROR: Final = 0.08
"""Standard deviation of the log gain between rounds, since each start of a program places its memory anew: the largest
that was measured, docs/log.md. It is assumed where too few rounds tell how much they differ."""
_LEAST_START_ERROR: Final = 0.05
"""The least that is assumed from MIN_STARTS on, the middle of what was measured: three may agree by chance."""


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times as fast the candidate's steps are, stalls included, as a log."""

    log: float
    rounds: int
    pairs: int
    within: float
    """Variance of the log in a round, by the pairs of its blocks."""
    between: float
    """Variance between rounds; 0: fewer than MIN_STARTS."""

    def half(self, rounds: int = 0) -> float:
        """Return the half width of the 95% interval; with another number of `rounds`, what it would be then."""
        number = rounds or self.rounds
        starts = _START_ERROR if number < MIN_STARTS else _LEAST_START_ERROR
        pairs = self.pairs * number // self.rounds
        half = sequential.quantile(pairs - 1, 1 - _SIDE_ERROR) * math.sqrt((self.within + starts**2) / number)
        if self.rounds < MIN_STARTS:
            return half
        return max(half, sequential.quantile(number - 1, 1 - _SIDE_ERROR) * math.sqrt(self.between / number))

    def interval(self, rounds: int = 0) -> tuple[float, float]:
        """Return the ends of that interval, as factors."""
        return math.exp(self.log - self.half(rounds)), math.exp(self.log + self.half(rounds))


def measured_gain(rounds: Sequence[Round]) -> Gain | None:
    """Return how much faster all steps are, from pairs of neighbouring blocks; None: too few pairs."""
    logs, variances, pairs = list[float](), list[float](), 0
    for each in rounds:
        both = block_pairs(each)
        if len(both) < MIN_PAIRS:
            continue
        # the error of a ratio of sums, to first order: each pair's part of it
        parts = both.base / both.base.mean() - both.candidate / both.candidate.mean()
        logs.append(math.log(both.base.sum() / both.candidate.sum()))
        variances.append(float(parts.var(ddof=1)) / len(both))
        pairs += len(both)
    if not logs:
        return None
    between = variance(logs) if len(logs) >= MIN_STARTS else 0.0
    return Gain(fmean(logs), len(logs), pairs, fmean(variances), between)


def time_for_rounds(
    begin: float, seconds: float, rounds: Sequence[Round], wait: Callable[[float], None]
) -> Iterator[None]:
    """Yield before each round, until the gain is known well or another round would end later than `seconds` after
    `begin`.

    :param wait: waits for a quiet moment, for so many seconds at most.
    """
    while True:
        wait(min(_WAITS * seconds, begin + seconds - time.monotonic()))
        yield
        gain = measured_gain(rounds)
        if gain is not None and len(rounds) >= MIN_STARTS and gain.half() < NARROW:
            return
        if time.monotonic() - begin + max(done.seconds for done in rounds) > seconds:
            return


def doubt(gain: Gain, rounds: Sequence[Round]) -> Notice | None:
    """Say why a gain says nothing, because it is not known within a factor of two; None: it says something."""
    low, high = gain.interval()
    mean = mean_conditions(rounds)
    busy = {"threads": mean.load, "cores": mean.cores} if mean.is_busy else {}
    return Notice("too-wide", {"low": low, "high": high, **busy}) if gain.half() >= WIDE else None


def mean_conditions(rounds: Sequence[Round]) -> Conditions:
    """Return the mean load of the machine over the rounds."""
    loads = [one.conditions.load for one in rounds if one.conditions.load is not None]
    return Conditions(fmean(loads) if loads else None, cores=rounds[0].conditions.cores)


def more_time(gain: Gain, seconds: float) -> Notice | None:
    """Say what MORE_S would give, by the rounds that `seconds` gave; None: the gain is known well."""
    most = gain.rounds + max(1, int(gain.rounds * MORE_S / seconds))
    enough = (number for number in range(max(MIN_STARTS, gain.rounds + 1), most) if gain.half(number) < NARROW)
    low, high = gain.interval(next(enough, most))  # no further round is measured then
    values = {"minutes": round(MORE_S / 60), "low": low, "high": high}
    return Notice("more-time", values) if gain.half() >= NARROW else None


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
