"""Blocks of live rounds as samples for other tools' rules, whose users measure one revision after the other.

Same job: the first blocks of the base in a round, then the last blocks of the candidate, and the other way round.
Stored: the base's blocks of one gate, the candidate's of another. Both with few samples and with as many as a gate has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from profiler.check.model import BASE, CANDIDATE, MEASURE, Round
from tests.benchmarks.gate_rates import FEWEST_GATES, Rate, at_least, at_most, interval
from tests.benchmarks.gate_rules import Array, Rule

FEW = 10
"""Samples of a side: what benchstat advises (`go test -count=10`) and asv takes (two processes of five)."""
ROUNDS = 5
"""Rounds of our shortest gate."""
MOST_STORED = 240
"""Rounds that are paired with each other, since the number of pairs grows with their square."""
REPLICATES = 400


@dataclass(frozen=True)
class Samples:
    """Samples of both sides, row by row."""

    base: Array
    candidate: Array
    gates: npt.NDArray[np.int64]
    """(rows, 2): the gates that the base's and the candidate's samples come from."""

    def __len__(self) -> int:
        return len(self.base)


Sides = tuple[int, Array, Array]
"""Gate, and times of a step in its base's and its candidate's blocks, in the order of time."""


def sides(gates: Sequence[Mapping[str, Any]]) -> list[list[Sides]]:
    """Rounds that measure, by gate, all cut to the same number of blocks; without those of fewer than twice FEW."""
    usable = [
        [
            (number, base, candidate)
            for measured in gate["rounds"]
            if measured.kind == MEASURE
            for base, candidate in [(_times(measured, BASE), _times(measured, CANDIDATE))]
            if min(len(base), len(candidate)) >= 2 * FEW
        ]
        for number, gate in enumerate(gates)
    ]
    least = min((min(len(base), len(candidate)) for rounds in usable for _, base, candidate in rounds), default=0)
    return [[(gate, base[:least], candidate[:least]) for gate, base, candidate in rounds] for rounds in usable]


def _times(measured: Round, side: str) -> Array:
    times = [block.time / len(block.steps) for block in measured.blocks if block.side == side and block.steps]
    return np.array(times, np.float64)


def samples(gates: Sequence[Mapping[str, Any]]) -> dict[str, Samples]:
    """Samples by the way of measuring; ways for which there is no data are left out."""
    by_gate = sides(gates)
    every = [measured for rounds in by_gate for measured in rounds]
    spread = every
    if len(every) > MOST_STORED:
        spread = [every[int(index)] for index in np.linspace(0, len(every) - 1, MOST_STORED)]
    whole = [rounds[:ROUNDS] for rounds in by_gate if len(rounds) >= ROUNDS]
    half = ROUNDS // 2
    found = {
        "few, same job": _rows(
            [(gate, base[:FEW], candidate[-FEW:]) for gate, base, candidate in every]
            + [(gate, base[-FEW:], candidate[:FEW]) for gate, base, candidate in every]
        ),
        "few, stored": _across([(gate, base[:FEW], candidate[:FEW]) for gate, base, candidate in spread]),
        "many, same job": _rows(
            [_joined(rounds[:half], rounds[-half:]) for rounds in whole]
            + [_joined(rounds[-half:], rounds[:half]) for rounds in whole]
        ),
        "many, stored": _across([_joined(rounds, rounds) for rounds in whole]),
    }
    return {name: rows for name, rows in found.items() if rows is not None}


def _joined(base: Sequence[Sides], candidate: Sequence[Sides]) -> Sides:
    """The base's blocks of some rounds, the candidate's of others."""
    return base[0][0], np.concatenate([one[1] for one in base]), np.concatenate([one[2] for one in candidate])


def _rows(rows: Sequence[Sides]) -> Samples | None:
    if not rows:
        return None
    gates, base, candidate = zip(*rows, strict=True)
    return Samples(np.stack(base), np.stack(candidate), np.stack([gates, gates], axis=1))


def _across(rows: Sequence[Sides]) -> Samples | None:
    """The base of each gate with the candidate of each other gate."""
    gates = np.array([gate for gate, _, _ in rows])
    if len(set(gates.tolist())) < 2:
        return None
    first, second = np.nonzero(gates[:, np.newaxis] != gates)
    base, candidate = np.stack([row[1] for row in rows]), np.stack([row[2] for row in rows])
    return Samples(base[first], candidate[second], np.stack([gates[first], gates[second]], axis=1))


def rule_rate(rule: Rule, rows: Samples, gates: int, rng: np.random.Generator) -> Rate:
    """Share of rows in which a rule reports a slow-down.

    The interval comes from whole gates drawn with replacement, since the rounds of a gate share their minutes.
    """
    failed, compared = np.zeros((gates, gates)), np.zeros((gates, gates))
    pairs = rows.gates[:, 0], rows.gates[:, 1]
    np.add.at(failed, pairs, rule.fails(rows.base, rows.candidate))
    np.add.at(compared, pairs, 1)
    rate = float(failed.sum() / compared.sum())
    # how often each gate is drawn, in each replicate
    weights = rng.multinomial(gates, np.full(gates, 1 / gates), size=REPLICATES).astype(np.float64)
    number = int(np.count_nonzero(compared.sum(axis=0) + compared.sum(axis=1)))
    if number < FEWEST_GATES:
        return Rate(rate)
    if rate in {0.0, 1.0}:  # all replicates are equal, so the number of gates bounds the rate
        return Rate(rate, 0.0, at_most(0, number)) if not rate else Rate(rate, at_least(number, number), 1.0)
    drawn_failed, drawn = (np.einsum("bi,ij,bj->b", weights, counts, weights) for counts in (failed, compared))
    return interval(rate, drawn_failed[drawn > 0] / drawn[drawn > 0])
