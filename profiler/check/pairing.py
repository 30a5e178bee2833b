"""A round's turns as pairs: adjacent turns of two sides, so that what the machine does falls on both alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiler.check.model import BASE, Round, Turn


@dataclass(frozen=True, slots=True)
class Pairs:
    """Time for a unit of work (ns a token, or ns a step), pair by pair, in the order of time."""

    first: npt.NDArray[np.float64]
    """Of the side that is held against: the base."""
    second: npt.NDArray[np.float64]
    led: npt.NDArray[np.bool_]
    """Whether the second side's turn came first."""
    steps: float
    """Of a turn, median."""
    by_tokens: bool

    def __len__(self) -> int:
        return len(self.first)


def pairs_of(one: Round, side: str, against: str = BASE) -> Pairs:
    """Pairs of neighbouring turns of two sides, each turn in one pair at most.

    Work is tokens where every turn of both sides says how many, and steps otherwise. Turns without a step are left out;
    a turn whose partner is missing too.
    """
    turns = [turn for turn in one.turns if turn.side in {side, against} and turn.steps and turn.time > 0]
    by_tokens = bool(turns) and all(turn.tokens > 0 for turn in turns)
    found = list(_neighbours(turns))
    times = [[_per_work(turn, by_tokens) for turn in pair] for pair in found]
    led = [pair[0].side == side for pair in found]
    return Pairs(
        np.array([time[ahead] for time, ahead in zip(times, led, strict=True)], np.float64),
        np.array([time[not ahead] for time, ahead in zip(times, led, strict=True)], np.float64),
        np.array(led, np.bool_),
        float(np.median([len(turn.steps) for turn in turns])) if turns else 0.0,
        by_tokens,
    )


def _neighbours(turns: list[Turn]) -> Iterator[tuple[Turn, Turn]]:
    place = 0
    while place + 1 < len(turns):
        if turns[place].side == turns[place + 1].side:
            place += 1  # its partner is missing
            continue
        yield turns[place], turns[place + 1]
        place += 2


def _per_work(turn: Turn, by_tokens: bool) -> float:
    return turn.time / (turn.tokens if by_tokens else len(turn.steps))
