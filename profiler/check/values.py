"""What one round says: the log slow-down of the typical step, and of all steps with their stalls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.check.model import CANDIDATE, CONTROL, Round
from profiler.check.pairing import Pairs, pairs_of

FEWEST_PAIRS: Final = 4
"""With fewer a round says nothing."""
CAP: Final = 0.6
"""The most that a stall counts, in times of a usual step: above the +50% that must be seen, and low, since the noise of
the second line grows with it (docs/log.md)."""
ROOM: Final = 0.05
"""The least room below the cap, as a share of a turn: a turn of many steps holds many stalls."""
NEIGHBOURS: Final = 3
"""Pairs on each side that say what is usual just then: some seconds of turns."""

MEDIAN_ERROR: Final = 1.2533 * 1.4826
"""sqrt(pi / 2), of a median against a mean, times 1 / 0.6745, of a normal's sd against its MAD."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RoundValues:
    """Log slow-downs of a round: ln(base's work a second / candidate's work a second). None: too few pairs of turns."""

    typical: float | None
    whole: float | None
    control_typical: float | None = None
    """The control against the base; None: it took no turns."""
    control_whole: float | None = None
    pairs: int = 0
    typical_error: float = 0.0
    """Standard error of the candidate's value, from the pairs of this round alone: without the programs' luck."""
    whole_error: float = 0.0
    beyond: float = 0.0
    """How much longer still the candidate takes where stalls count in full: log ratio of the sums, less `whole`."""
    control_beyond: float = 0.0

    @property
    def usable(self) -> bool:
        """Whether it says anything of the candidate."""
        return self.typical is not None and self.whole is not None


def round_values(one: Round) -> RoundValues:
    """Both lines of a round, of the candidate and of the control, each against the base."""
    candidate, control = pairs_of(one, CANDIDATE), pairs_of(one, CONTROL)
    first, second = _lines(candidate), _lines(control)
    return RoundValues(
        first.typical,
        first.whole,
        second.typical,
        second.whole,
        len(candidate),
        first.typical_error,
        first.whole_error,
        first.beyond,
        second.beyond,
    )


def _lines(pairs: Pairs) -> RoundValues:
    """Of two sides."""
    if len(pairs) < FEWEST_PAIRS:
        return RoundValues(None, None)
    usual, error = typical(pairs.first, pairs.second)
    every, its_error = whole(pairs.first, pairs.second, pairs.steps)
    full = float(np.log(pairs.second.sum() / pairs.first.sum()))
    return RoundValues(
        float(usual),
        float(every),
        typical_error=float(error),
        whole_error=float(its_error),
        beyond=full - float(every),
    )


def typical(base: Array, candidate: Array) -> tuple[Array, Array]:
    """Median over pairs (last axis) of ln(candidate's time / base's time), blind to what is rare, and its error.

    The standard error takes the pairs as independent and their middle half as normal: MEDIAN_ERROR times their MAD.
    """
    logs = np.log(candidate / base)
    middle = np.median(logs, axis=-1)
    apart = np.median(np.abs(logs - middle[..., np.newaxis]), axis=-1)
    return np.asarray(middle), np.asarray(MEDIAN_ERROR * apart / math.sqrt(logs.shape[-1]))


def whole(base: Array, candidate: Array, steps: float) -> tuple[Array, Array]:
    """Log ratio of what all steps took, where no turn counts more than a stall of CAP above what is usual just then.

    The typical step's slow-down, and to it how much more the candidate's turns are above their usual time than the
    base's are. Without the cap this is the ratio of sums, whose noise is several times as great. And its standard
    error, which takes the pairs as independent.

    :param base: time for a unit of work, pairs along the last axis, in the order of time.
    :param steps: of a turn.
    """
    usual, _ = typical(base, candidate)
    levelled = np.log(candidate) - usual[..., np.newaxis]
    level = np.exp(_running_median(np.log(base), levelled))
    cap = 1 + CAP / max(steps, 1.0) + ROOM
    of_base = np.minimum(base / level, cap)
    of_candidate = np.minimum(np.exp(levelled) / level, cap)
    error = (of_candidate - of_base).std(axis=-1, ddof=1) / math.sqrt(base.shape[-1])
    return np.asarray(usual + np.log(of_candidate.mean(axis=-1) / of_base.mean(axis=-1))), np.asarray(error)


def _running_median(base: Array, candidate: Array) -> Array:
    """Of both sides' turns together, over NEIGHBOURS pairs to each side; near an end over the same number of pairs."""
    pairs = base.shape[-1]
    both = np.stack([base, candidate], axis=-1)
    width = min(2 * NEIGHBOURS + 1, pairs)
    level = np.empty_like(base)
    for pair in range(pairs):
        begin = min(max(0, pair - NEIGHBOURS), pairs - width)
        near = both[..., begin : begin + width, :]
        level[..., pair] = np.median(near.reshape(*near.shape[:-2], -1), axis=-1)
    return level
