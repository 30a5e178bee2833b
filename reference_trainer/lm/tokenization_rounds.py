"""Measures the ways of tokenization in interleaved rounds: rates, and ratios with their intervals."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from reference_trainer.errors import TrainerError
from reference_trainer.lm.tokenization_ways import Case, Way

ROUNDS: Final = 15
LEAST_ROUNDS: Final = 5
"""Of less, an interval says little."""
LEAST_CHUNKS: Final = 128
"""A round: beside them, what background workers tokenize in vain at its end counts little."""
CHECKED: Final = 2
"""Chunks of each way that are compared with the first way's, which warms them up too."""
CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Round:
    """What one way took for the chunks of one round."""

    seconds: float
    cpu_s: float
    """CPU time of all threads of this process."""
    samples: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range over rounds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """Geometric mean of the rounds' ratios with its 95% t interval."""

    value: float
    low: float
    high: float
    n: int
    """Rounds."""
    different: bool
    """False: the interval contains 1, no difference seen."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One way's figures."""

    samples_per_s: Spread
    tokens_per_s: Spread
    ms_per_sample: Spread
    cpu_ms_per_sample: Spread
    ratio: Ratio
    """Samples per second over those of the first way."""


def measure(case: Case, ways: Sequence[Way], seconds: float) -> dict[str, Measured]:
    """Figures of all ways that can be measured, by name, in about so many seconds.

    :raises TrainerError: a way gives other ids than the first one.
    """
    there = [way for way in ways if way.open is not None]
    _check(there)
    a_chunk = sum(run_round(way, case, 0, CHECKED).seconds for way in there) / CHECKED
    chunks = max(LEAST_CHUNKS, int(seconds / ROUNDS / a_chunk))
    until = time.perf_counter() + seconds
    by_way: dict[str, list[Round]] = {way.name: [] for way in there}
    done = 0
    while done < LEAST_ROUNDS or time.perf_counter() < until:
        for way in there if done % 2 == 0 else reversed(there):  # so that none always comes first
            by_way[way.name].append(run_round(way, case, done * chunks, chunks))
        done += 1
    first = by_way[there[0].name]
    return {name: summary(rounds, first) for name, rounds in by_way.items()}


def _check(ways: Sequence[Way]) -> None:
    expected = _first_chunks(ways[0])
    for way in ways[1:]:
        for index, (expected_ids, ids) in enumerate(zip(expected, _first_chunks(way), strict=True)):
            if way.same and not np.array_equal(expected_ids, ids):
                raise TrainerError(f"{way.name} and {ways[0].name} give other ids for chunk {index}: report this")


def _first_chunks(way: Way) -> list[np.ndarray]:
    assert way.open is not None
    source = way.open()
    try:
        return [source.ids(index) for index in range(CHECKED)]
    finally:
        source.close()


def run_round(way: Way, case: Case, first: int, chunks: int) -> Round:
    """Time the chunks from `first` on; starting and ending background workers is in it."""
    assert way.open is not None
    source = way.open()
    try:
        cpu, began = time.process_time(), time.perf_counter()
        tokens = sum(len(source.ids(index)) for index in range(first, first + chunks))
        source.close()
        return Round(time.perf_counter() - began, time.process_time() - cpu, chunks * case.samples_per_chunk, tokens)
    finally:
        source.close()


def summary(rounds: Sequence[Round], first: Sequence[Round]) -> Measured:
    """Figures of a way out of its rounds and those of the way that it is held against."""
    ratios = [(r.samples / r.seconds) / (f.samples / f.seconds) for r, f in zip(rounds, first, strict=True)]
    return Measured(
        samples_per_s=_spread([r.samples / r.seconds for r in rounds]),
        tokens_per_s=_spread([r.tokens / r.seconds for r in rounds]),
        ms_per_sample=_spread([r.seconds * 1e3 / r.samples for r in rounds]),
        cpu_ms_per_sample=_spread([r.cpu_s * 1e3 / r.samples for r in rounds]),
        ratio=ratio_of(ratios),
    )


def _spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def ratio_of(ratios: Sequence[float]) -> Ratio:
    """The mean ratio of two or more paired rounds; their logarithms are taken as independent."""
    from scipy.special import stdtrit

    logs = [math.log(ratio) for ratio in ratios]
    mean, n = statistics.fmean(logs), len(logs)
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * statistics.stdev(logs) / math.sqrt(n)
    low, high = math.exp(mean - half), math.exp(mean + half)
    return Ratio(math.exp(mean), low, high, n, different=not low <= 1 <= high)
