"""How the turns of live rounds are given to other tools' rules: as their users would, one revision after the other.

Same job: first turns of the base in a round, then last turns of the candidate (and the other way round). Stored: the
base's turns of one gate, the candidate's of another one. Each with few samples, and with as many as our gate takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from profiler.check.model import BASE, CANDIDATE, MEASURE, Round
from tests.benchmarks.gate_rules import Array, Rule

FEW = 10
"""Samples of a side: `go test -count=10` as benchstat advises; two processes of five in asv; the study before this."""
ROUNDS = 5
"""That the shortest gate of ours takes."""
MOST_STORED = 240
"""Rounds that are paired with each other: the pairs grow with their square."""

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fed:
    """Samples, row by row, and the gates that they come from."""

    base: Array
    candidate: Array
    gates: npt.NDArray[np.int64]
    """(rows, 2): of the base, of the candidate."""

    def __len__(self) -> int:
        return len(self.base)


@dataclass(frozen=True)
class Found:
    """How often a rule failed, by pairs of gates."""

    failed: Counts
    """(gates, gates)"""
    fed: Counts

    @property
    def rate(self) -> float:
        return float(self.failed.sum() / self.fed.sum()) if self.fed.any() else float("nan")


Sides = tuple[int, Array, Array]
"""Gate, and times of a step in its base's and its candidate's turns, in the order of time."""


def sides(gates: Sequence[Mapping[str, Any]]) -> list[list[Sides]]:
    """Rounds that measure, by gate, all cut to the same number of turns; without those of fewer than twice FEW."""
    found = [
        [(place, _times(one, BASE), _times(one, CANDIDATE)) for one in gate["rounds"] if one.kind == MEASURE]
        for place, gate in enumerate(gates)
    ]
    found = [[one for one in rounds if min(len(one[1]), len(one[2])) >= 2 * FEW] for rounds in found]
    least = min((min(len(base), len(candidate)) for rounds in found for _, base, candidate in rounds), default=0)
    return [[(place, base[:least], candidate[:least]) for place, base, candidate in rounds] for rounds in found]


def _times(one: Round, side: str) -> Array:
    return np.array(
        [turn.time / len(turn.steps) for turn in one.blocks if turn.side == side and turn.steps], np.float64
    )


def feeds(gates: Sequence[Mapping[str, Any]]) -> dict[str, Fed]:
    """All ways; those that there is no data for are left out."""
    rounds = sides(gates)
    every = [one for of_gate in rounds for one in of_gate]
    whole = [of_gate[:ROUNDS] for of_gate in rounds if len(of_gate) >= ROUNDS]
    late = ROUNDS // 2
    found = {
        "few, same job": _both_ways([(at, base[:FEW], other[-FEW:]) for at, base, other in every],
                                    [(at, base[-FEW:], other[:FEW]) for at, base, other in every]),
        "few, stored": _across([(at, base[:FEW], other[:FEW]) for at, base, other in _spread(every)]),
        "many, same job": _both_ways([_joined(of[:late], of[-late:]) for of in whole],
                                     [_joined(of[-late:], of[:late]) for of in whole]),
        "many, stored": _across([_joined(of, of) for of in whole]),
    }  # fmt: skip
    return {name: fed for name, fed in found.items() if fed is not None}


def _joined(base: Sequence[Sides], candidate: Sequence[Sides]) -> Sides:
    """The base's turns of some rounds, the candidate's of others."""
    return base[0][0], np.concatenate([one[1] for one in base]), np.concatenate([one[2] for one in candidate])


def _spread(rounds: Sequence[Sides]) -> list[Sides]:
    if len(rounds) <= MOST_STORED:
        return list(rounds)
    return [rounds[int(place)] for place in np.linspace(0, len(rounds) - 1, MOST_STORED)]


def _both_ways(forward: Sequence[Sides], backward: Sequence[Sides]) -> Fed | None:
    rows = [*forward, *backward]
    if not rows:
        return None
    gates = np.array([(at, at) for at, _, _ in rows])
    return Fed(np.stack([base for _, base, _ in rows]), np.stack([other for _, _, other in rows]), gates)


def _across(rows: Sequence[Sides]) -> Fed | None:
    """Each base against each candidate of another gate."""
    at = np.array([gate for gate, _, _ in rows])
    if len(set(at.tolist())) < 2:
        return None
    first, second = np.nonzero(at[:, np.newaxis] != at)
    base = np.stack([base for _, base, _ in rows])[first]
    return Fed(base, np.stack([other for _, _, other in rows])[second], np.stack([at[first], at[second]], axis=1))


def apply(rule: Rule, fed: Fed, gates: int, *, chunk: int = 8192) -> Found:
    """A rule on all rows."""
    failed, number = np.zeros((gates, gates)), np.zeros((gates, gates))
    for begin in range(0, len(fed), chunk):
        rows = slice(begin, begin + chunk)
        flags = rule.fails(fed.base[rows], fed.candidate[rows])
        where = fed.gates[rows, 0], fed.gates[rows, 1]
        np.add.at(failed, where, flags)
        np.add.at(number, where, 1)
    return Found(failed, number)
