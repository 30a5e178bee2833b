"""Diagnostics of the rounds: reasons to distrust them.

On clean rounds each of them is seldom raised: tests use the level ALPHA, and an effect must also be large compared with
the slow-down to detect.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Final

import numpy as np

from profiler.check.model import BASE, CANDIDATE, LOOKS, MEASURE, Limits, Round
from profiler.check.speed.round_values import Pairs, RoundValues, block_pairs, round_values
from profiler.check.speed.sequential import Edges, edges, mean_test, p_value, rare_stalls
from profiler.core.notice import Notice

ALPHA: Final = 0.001
"""Two-sided error of one test: clean rounds trigger it this rarely."""
CONTROL_ALPHA: Final = 0.005
"""Level for the base against itself; less strict, since three to eight rounds show little."""
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
LOAD: Final = 0.5
"""Runnable threads of other programs per core; if the number of cores is unknown, LOAD_UNKNOWN threads in all."""
LOAD_UNKNOWN: Final = 1.0


@dataclass(frozen=True, slots=True)
class UsableRound:
    """A round with its values."""

    round: Round
    values: RoundValues
    typical: float
    pairs: Pairs

    @property
    def base_first(self) -> bool:
        """Whether the base's program was started before the candidate's."""
        slots = self.round.slots
        return BASE in slots and CANDIDATE in slots and slots.index(BASE) < slots.index(CANDIDATE)


@dataclass(frozen=True)
class Evidence:
    """All rounds of a check."""

    rounds: tuple[Round, ...]
    usable: tuple[UsableRound, ...]
    """The usable rounds of both kinds, in order."""
    edges: Edges

    @cached_property
    def slowdowns(self) -> list[float]:
        """Slow-downs of the typical step."""
        return [usable.typical for usable in self.usable]


def diagnose(rounds: Sequence[Round], limits: Limits) -> tuple[Notice, ...]:
    """A notice for everything that is odd; none where there are no rounds."""
    if not rounds:
        return ()
    usable = []
    for measured in rounds:
        values = round_values(measured)
        if values.typical is not None and values.all_steps is not None:
            usable.append(UsableRound(measured, values, values.typical, block_pairs(measured, CANDIDATE)))
    evidence = Evidence(tuple(rounds), tuple(usable), edges(limits.detect))
    return tuple(notice for diagnostic in _DIAGNOSTICS if (notice := diagnostic(evidence)))


# ---------------------------------------------------------------- how much was measured


def few_rounds(evidence: Evidence) -> Notice | None:
    number = sum(usable.round.kind == MEASURE for usable in evidence.usable)
    return Notice("few-rounds", {"rounds": number}) if 0 < number < LOOKS[0] else None


def lost_rounds(evidence: Evidence) -> Notice | None:
    total = len(evidence.rounds)
    lost = total - len(evidence.usable)
    return Notice("lost-rounds", {"lost": lost, "rounds": total}) if lost else None


def few_blocks(evidence: Evidence) -> Notice | None:
    if not evidence.usable:
        return None
    pairs = float(np.median([len(usable.pairs) for usable in evidence.usable]))
    steps = sum(len(usable.pairs) * usable.pairs.steps for usable in evidence.usable)
    if pairs < FEW_PAIRS:
        return Notice("few-pairs", {"pairs": round(pairs)})
    return Notice("few-steps", {"steps": round(steps)}) if steps < FEW_STEPS else None


def tokens_missing(evidence: Evidence) -> Notice | None:
    """Notice that only one side reports its tokens."""
    counting = {block.side for measured in evidence.rounds for block in measured.blocks if block.tokens > 0}
    silent = {BASE, CANDIDATE} - counting
    return Notice("tokens-missing", {"side": silent.pop()}) if len(silent) == 1 else None


def tokens_differ(evidence: Evidence) -> Notice | None:
    """Notice that the steps of the sides have different numbers of tokens."""
    if not evidence.usable or not all(usable.pairs.by_tokens for usable in evidence.usable):
        return None
    tokens, steps = Counter[str](), Counter[str]()
    for usable in evidence.usable:
        for block in usable.round.blocks:
            tokens[block.side] += block.tokens
            steps[block.side] += len(block.steps)
    ratio = (tokens[CANDIDATE] / steps[CANDIDATE]) / (tokens[BASE] / steps[BASE])
    return Notice("tokens-differ", {"ratio": ratio}) if abs(ratio - 1) > SAME_WORK else None


# ---------------------------------------------------------------- the values of the rounds


def drift(evidence: Evidence) -> Notice | None:
    """Notice that a straight line through the rounds' slow-downs changes by more than the edge of a FAIL."""
    values = evidence.slowdowns
    number = len(values)
    if number < FEW_VALUES:
        return None
    offsets = [index - (number - 1) / 2 for index in range(number)]
    square = math.fsum(offset**2 for offset in offsets)
    slope = math.fsum(offset * value for offset, value in zip(offsets, values, strict=True)) / square
    mean = fmean(values)
    residual = math.fsum((value - mean - slope * offset) ** 2 for offset, value in zip(offsets, values, strict=True))
    change = slope * (number - 1)
    p = p_value(slope, math.sqrt(residual / (number - 2) / square), number - 2)
    return Notice("drift", {"change": change}) if abs(change) > evidence.edges.fails and p < ALPHA else None


def odd_round(evidence: Evidence) -> Notice | None:
    """Notice of the round that is least likely by chance given the others, if any round is very unlikely."""
    if len(evidence.usable) < FEW_VALUES:
        return None
    candidates = []
    for index, usable in enumerate(evidence.usable):
        others = [*evidence.slowdowns[:index], *evidence.slowdowns[index + 1 :]]
        mean, degrees = fmean(others), len(others) - 1
        spread = math.sqrt(math.fsum((value - mean) ** 2 for value in others) / degrees)
        difference = usable.typical - mean
        p = p_value(difference, spread * math.sqrt(1 + 1 / len(others)), degrees)
        if p < ALPHA / len(evidence.usable) and abs(difference) > evidence.edges.passes:
            candidates.append((p, -abs(difference), usable.round.number, usable.typical, mean))
    if not candidates:
        return None
    _, _, number, value, mean = min(candidates)
    return Notice("odd-round", {"round": number, "slowdown": value, "others": mean})


def stalls(evidence: Evidence) -> Notice | None:
    added = rare_stalls([usable.values.excess for usable in evidence.usable], evidence.edges)
    return None if added is None else Notice("rare-stalls", {"added": added})


# ---------------------------------------------------------------- the method: differences where there should be none


def start_order(evidence: Evidence) -> Notice | None:
    """Notice that the result depends on whose program is started first."""
    second = [usable.typical for usable in evidence.usable if usable.base_first]
    first = [usable.typical for usable in evidence.usable if not usable.base_first]
    if min(len(first), len(second)) < 2:
        return None
    degrees = len(first) + len(second) - 2
    squares = math.fsum((value - fmean(group)) ** 2 for group in (first, second) for value in group)
    difference = fmean(second) - fmean(first)
    p = p_value(difference, math.sqrt(squares / degrees * (1 / len(first) + 1 / len(second))), degrees)
    return _if_large("start-order", difference, p, evidence)


def block_order(evidence: Evidence) -> Notice | None:
    """Notice that the result depends on whose block of a pair comes first."""
    differences = []
    for usable in evidence.usable:
        logs, first = np.log(usable.pairs.side / usable.pairs.base), usable.pairs.side_first
        if first.any() and not first.all():
            differences.append(float(np.median(logs[~first]) - np.median(logs[first])) / 2)
    return _if_large("block-order", *mean_test(differences), evidence)


def _if_large(code: str, difference: float, p: float, evidence: Evidence) -> Notice | None:
    large = p < ALPHA and abs(difference) > evidence.edges.fails
    return Notice(code, {"difference": difference}) if large else None


def control(evidence: Evidence) -> Notice | None:
    """Notice that the base differs from itself."""
    values = [usable.values for usable in evidence.usable]
    for series in ([value.control_typical for value in values], [value.control_all_steps for value in values]):
        measured = [value for value in series if value is not None]
        difference, p = mean_test(measured)
        if p < CONTROL_ALPHA and abs(difference) > evidence.edges.fails / 2:
            return Notice("control-differs", {"difference": difference, "rounds": len(measured)})
    return None


# ---------------------------------------------------------------- the machine


def machine_speed(evidence: Evidence) -> Notice | None:
    if not evidence.usable or len({usable.pairs.by_tokens for usable in evidence.usable}) > 1:
        return None
    times = {usable.round.number: float(np.median(usable.pairs.base)) for usable in evidence.usable}
    slow, fast = max(times, key=lambda number: times[number]), min(times, key=lambda number: times[number])
    ratio = times[slow] / times[fast]
    return Notice("unsteady-speed", {"ratio": ratio, "slow": slow, "fast": fast}) if ratio > UNSTEADY else None


def steal(evidence: Evidence) -> Notice | None:
    shares = [measured.conditions.steal for measured in evidence.rounds if measured.conditions.steal is not None]
    return Notice("steal", {"share": fmean(shares)}) if shares and fmean(shares) > STEAL else None


def load(evidence: Evidence) -> Notice | None:
    """Notice that other programs wanted to run. Paused sides have no runnable threads, so they do not count."""
    threads = [measured.conditions.load for measured in evidence.rounds if measured.conditions.load is not None]
    cores = evidence.rounds[0].conditions.cores
    if not threads or fmean(threads) < max(LOAD * (cores or 0), LOAD_UNKNOWN):
        return None
    return Notice("load", {"threads": fmean(threads), "cores": cores})


def throttled(evidence: Evidence) -> Notice | None:
    rounds = Counter(clock for measured in evidence.rounds for clock in measured.conditions.throttled)
    return (
        Notice("throttled", {"clocks": dict(sorted(rounds.items())), "rounds": len(evidence.rounds)})
        if rounds
        else None
    )


_DIAGNOSTICS: Final[tuple[Callable[[Evidence], Notice | None], ...]] = (
    few_rounds,
    lost_rounds,
    few_blocks,
    tokens_missing,
    tokens_differ,
    drift,
    odd_round,
    stalls,
    start_order,
    block_order,
    control,
    machine_speed,
    steal,
    load,
    throttled,
)
