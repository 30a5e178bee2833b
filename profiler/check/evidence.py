"""What doubts look at: the rounds with their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiler.check.model import BASE, CANDIDATE, MEASURE, Limits, Round
from profiler.check.pairing import Pairs, pairs_of
from profiler.check.sequential import Edges, edges
from profiler.check.values import RoundValues, round_values


@dataclass(frozen=True, slots=True)
class Seen:
    """A round that says something."""

    round: Round
    values: RoundValues
    typical: float
    whole: float
    pairs: Pairs

    @property
    def base_first(self) -> bool:
        """Whether the base's program was started before the candidate's."""
        slots = self.round.slots
        return BASE in slots and CANDIDATE in slots and slots.index(BASE) < slots.index(CANDIDATE)


@dataclass(frozen=True, slots=True)
class Evidence:
    rounds: tuple[Round, ...]
    seen: tuple[Seen, ...]
    """Usable ones of both kinds, in their order."""
    at: Edges

    @property
    def measured(self) -> tuple[Seen, ...]:
        return tuple(one for one in self.seen if one.round.kind == MEASURE)


def collect(rounds: Sequence[Round], limits: Limits) -> Evidence:
    seen = []
    for one in rounds:
        values = round_values(one)
        if values.typical is not None and values.whole is not None:
            seen.append(Seen(one, values, values.typical, values.whole, pairs_of(one, CANDIDATE)))
    return Evidence(tuple(rounds), tuple(seen), edges(limits.detect))
