"""Diagnostics of the rounds: reasons to distrust them.

On clean rounds each of them is seldom raised: tests use the level ALPHA, and an effect must also be large compared with
the slow-down to detect.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Final

import numpy as np

from profiler.check.model import BASE, CANDIDATE, LOOKS, MEASURE, Limits, Round
from profiler.check.speed.rounds import Pairs, RoundValues, block_pairs, mean_conditions, round_values
from profiler.check.speed.sequential import Edges, edges, mean_test, p_value, rare_stalls
from profiler.core.errors import Notice

ALPHA: Final = 0.001
"""Two-sided error of one test: clean rounds trigger it this rarely."""
FEW_PAIRS: Final = 8
"""With fewer pairs the median is unreliable, and a whole round can miss a stall in every tenth step."""
FEW_STEPS: Final = 60
"""Steps of one side in all rounds: 60 contain six stalls if every tenth step stalls, and six can become twelve by
chance."""
SAME_WORK: Final = 0.02
"""Tokens of a step may differ by this share between the sides: batches are rarely of exactly equal size."""
FEW_VALUES: Final = 5
"""Minimum number of rounds in which a drift or an odd round is looked for."""
UNSTEADY: Final = 1.5
"""Ratio of the base's step times between rounds."""
STEAL: Final = 0.05
"""Share of the cores' time that other virtual machines took."""


@dataclass(frozen=True, slots=True)
class _UsableRound:
    round: Round
    values: RoundValues
    typical: float
    pairs: Pairs

    @property
    def base_first(self) -> bool:
        """Return whether the base's program was started before the candidate's."""
        slots = self.round.slots
        return BASE in slots and CANDIDATE in slots and slots.index(BASE) < slots.index(CANDIDATE)


@dataclass(frozen=True)
class _Rounds:
    """All rounds of a check."""

    rounds: tuple[Round, ...]
    edges: Edges

    @cached_property
    def usable(self) -> list[_UsableRound]:
        """Return the usable rounds of both kinds, in order."""
        return [
            _UsableRound(measured, values, values.typical, block_pairs(measured))
            for measured in self.rounds
            for values in [round_values(measured)]
            if values.typical is not None and values.all_steps is not None
        ]

    @cached_property
    def slowdowns(self) -> list[float]:
        """Return slow-downs of the typical step."""
        return [usable.typical for usable in self.usable]


def diagnose(rounds: Sequence[Round], limits: Limits) -> tuple[Notice, ...]:
    """Return a notice for everything that is odd; none where there are no rounds."""
    if not rounds:
        return ()
    measured = _Rounds(tuple(rounds), edges(limits.detect))
    parts = (_amount(measured), _values(measured), _method(measured), _machine(measured))
    return tuple(notice for part in parts for notice in part)


def _amount(measured: _Rounds) -> Iterator[Notice]:
    """Tell how much was measured: too few rounds, pairs or steps, or different work of the sides."""
    usable, rounds = measured.usable, measured.rounds
    number = sum(one.round.kind == MEASURE for one in usable)
    if 0 < number < LOOKS[0]:
        yield Notice("few-rounds", {"rounds": number})
    if len(usable) < len(rounds):
        yield Notice("lost-rounds", {"lost": len(rounds) - len(usable), "rounds": len(rounds)})
    if usable:
        pairs = float(np.median([len(one.pairs) for one in usable]))
        steps = sum(len(one.pairs) * one.pairs.steps for one in usable)
        if pairs < FEW_PAIRS:
            yield Notice("few-pairs", {"pairs": round(pairs)})
        elif steps < FEW_STEPS:
            yield Notice("few-steps", {"steps": round(steps)})
    silent = {BASE, CANDIDATE} - {block.side for one in rounds for block in one.blocks if block.tokens > 0}
    if len(silent) == 1:
        yield Notice("tokens-missing", {"side": silent.pop()})
    if usable and all(one.pairs.by_tokens for one in usable):
        blocks = [block for one in usable for block in one.round.blocks]
        per_step = {
            side: sum(block.tokens for block in blocks if block.side == side)
            / sum(len(block.steps) for block in blocks if block.side == side)
            for side in (BASE, CANDIDATE)
        }
        ratio = per_step[CANDIDATE] / per_step[BASE]
        if abs(ratio - 1) > SAME_WORK:
            yield Notice("tokens-differ", {"ratio": ratio})


def _values(measured: _Rounds) -> Iterator[Notice]:
    """Judge the values of the rounds: a drift, an odd round, rare stalls."""
    slowdowns, number = measured.slowdowns, len(measured.slowdowns)
    if number >= FEW_VALUES:
        change, p = _drift(slowdowns)
        if abs(change) > measured.edges.fails and p < ALPHA:
            yield Notice("drift", {"change": change})
        unlikely = []
        for index, usable in enumerate(measured.usable):
            p, mean = _p_given_others(slowdowns, index)
            difference = abs(usable.typical - mean)
            if p < ALPHA / number and difference > measured.edges.passes:
                unlikely.append((p, -difference, usable.round.number, usable.typical, mean))
        if unlikely:
            _, _, odd, value, mean = min(unlikely)
            yield Notice("odd-round", {"round": odd, "slowdown": value, "others": mean})
    added = rare_stalls([usable.values.excess for usable in measured.usable], measured.edges)
    if added is not None:
        yield Notice("rare-stalls", {"added": added})


def _drift(values: Sequence[float]) -> tuple[float, float]:
    """Return how much a straight line through the values changes from the first to the last, and its p."""
    number = len(values)
    offsets = [index - (number - 1) / 2 for index in range(number)]
    square = math.fsum(offset**2 for offset in offsets)
    slope = math.fsum(offset * value for offset, value in zip(offsets, values, strict=True)) / square
    mean = fmean(values)
    residual = math.fsum((value - mean - slope * offset) ** 2 for offset, value in zip(offsets, values, strict=True))
    return slope * (number - 1), p_value(slope, math.sqrt(residual / (number - 2) / square), number - 2)


def _p_given_others(values: Sequence[float], index: int) -> tuple[float, float]:
    """Return probability of a value so far from the mean of the others by chance, and that mean."""
    others = [*values[:index], *values[index + 1 :]]
    mean, degrees = fmean(others), len(others) - 1
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in others) / degrees)
    return p_value(values[index] - mean, spread * math.sqrt(1 + 1 / len(others)), degrees), mean


def _method(measured: _Rounds) -> Iterator[Notice]:
    """Judge the method: the order of programs or of blocks matters."""
    second = [usable.typical for usable in measured.usable if usable.base_first]
    first = [usable.typical for usable in measured.usable if not usable.base_first]
    if min(len(first), len(second)) >= 2:
        degrees = len(first) + len(second) - 2
        squares = math.fsum((value - fmean(group)) ** 2 for group in (first, second) for value in group)
        difference = fmean(second) - fmean(first)
        p = p_value(difference, math.sqrt(squares / degrees * (1 / len(first) + 1 / len(second))), degrees)
        if p < ALPHA and abs(difference) > measured.edges.fails:
            yield Notice("start-order", {"difference": difference})
    differences = []
    for usable in measured.usable:
        logs, first_blocks = np.log(usable.pairs.candidate / usable.pairs.base), usable.pairs.candidate_first
        if first_blocks.any() and not first_blocks.all():
            differences.append(float(np.median(logs[~first_blocks]) - np.median(logs[first_blocks])) / 2)
    difference, p = mean_test(differences)
    if p < ALPHA and abs(difference) > measured.edges.fails:
        yield Notice("block-order", {"difference": difference})


def _machine(measured: _Rounds) -> Iterator[Notice]:
    """Judge the machine: its speed changed, other programs or virtual machines used it, or its clocks were
    throttled."""
    if len({usable.pairs.by_tokens for usable in measured.usable}) == 1:
        times = {usable.round.number: float(np.median(usable.pairs.base)) for usable in measured.usable}
        slow, fast = max(times, key=lambda number: times[number]), min(times, key=lambda number: times[number])
        if (ratio := times[slow] / times[fast]) > UNSTEADY:
            yield Notice("unsteady-speed", {"ratio": ratio, "slow": slow, "fast": fast})
    conditions = [one.conditions for one in measured.rounds]
    shares = [one.steal for one in conditions if one.steal is not None]
    if shares and fmean(shares) > STEAL:
        yield Notice("steal", {"share": fmean(shares)})
    if (mean := mean_conditions(measured.rounds)).is_busy:
        yield Notice("load", {"threads": mean.load, "cores": mean.cores})
    if clocks := Counter(clock for one in conditions for clock in one.throttled):
        yield Notice("throttled", {"clocks": dict(sorted(clocks.items())), "rounds": len(measured.rounds)})
