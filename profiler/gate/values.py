"""What one round says: the log slow-down of the typical step, and of all steps with their stalls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.gate.model import CANDIDATE, CONTROL, Round
from profiler.gate.pairing import Pairs, pairs_of

FEWEST_PAIRS: Final = 4
"""With fewer a round says nothing."""
CAP: Final = 0.6
"""The most that a stall counts, in times of a usual step: above the +50% that must be seen, and low, since the noise of
the second line grows with it (docs/log.md)."""
ROOM: Final = 0.05
"""The least room below the cap, as a share of a turn: a turn of many steps holds many stalls."""
NEIGHBOURS: Final = 3
"""Pairs on each side that say what is usual just then: some seconds of turns."""

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

    @property
    def usable(self) -> bool:
        return self.typical is not None and self.whole is not None


def round_values(one: Round) -> RoundValues:
    """Both lines of a round, of the candidate and of the control, each against the base."""
    candidate = pairs_of(one, CANDIDATE)
    control = pairs_of(one, CONTROL)
    return RoundValues(*_both(candidate), *_both(control), pairs=len(candidate))


def _both(pairs: Pairs) -> tuple[float | None, float | None]:
    if len(pairs) < FEWEST_PAIRS:
        return None, None
    return float(typical(pairs.first, pairs.second)), float(whole(pairs.first, pairs.second, pairs.steps))


def typical(base: Array, candidate: Array) -> Array:
    """Median over pairs (last axis) of ln(candidate's time / base's time): blind to what is rare."""
    return np.asarray(np.median(np.log(candidate / base), axis=-1))


def whole(base: Array, candidate: Array, steps: float) -> Array:
    """Log ratio of what all steps took, where no turn counts more than a stall of CAP above what is usual just then.

    The typical step's slow-down, and to it how much more the candidate's turns are above their usual time than the
    base's are. Without the cap this is the ratio of sums, whose noise is several times as great.

    :param base: time for a unit of work, pairs along the last axis, in the order of time.
    :param steps: of a turn.
    """
    usual = typical(base, candidate)
    levelled = np.log(candidate) - usual[..., np.newaxis]
    level = np.exp(_running_median(np.log(base), levelled))
    cap = 1 + CAP / max(steps, 1.0) + ROOM
    above_base = np.minimum(base / level, cap).mean(axis=-1)
    above_candidate = np.minimum(np.exp(levelled) / level, cap).mean(axis=-1)
    return np.asarray(usual + np.log(above_candidate / above_base))


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
