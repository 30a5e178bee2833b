"""What the benchmarks share: interleaved rounds, ratios over their pairs, load by others, and runs of the trainer."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from profiler.analyse.statistics import student_t
from profiler.core.procfs import CLOCK_TICKS, cpu_times

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True)
class Interval:
    """Geometric mean of paired ratios with its 95% interval."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f}, {self.n} pairs)"


def ratio(after: Sequence[float], before: Sequence[float]) -> Interval:
    """after / before, pair by pair."""
    mean = mean_interval([math.log(late / early) for late, early in zip(after, before, strict=True)])
    return Interval(math.exp(mean.value), math.exp(mean.low), math.exp(mean.high), mean.n)


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean with its 95% interval."""
    mean, n = statistics.fmean(values), len(values)
    margin = student_t(n - 1) * statistics.stdev(values) / math.sqrt(n) if n > 1 else math.inf
    return Interval(mean, mean - margin, mean + margin, n)


def interleaved(ways: Mapping[K, Callable[[int], T]], rounds: int) -> dict[K, list[T]]:
    """The results of each way, by round. Their order alternates from round to round.

    :param ways: functions of the number of the round.
    """
    results: dict[K, list[T]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in reversed(list(ways)) if number % 2 else ways:
            results[name].append(ways[name](number))
    return results


def seconds(work: Callable[[], object]) -> float:
    """Wall time of `work`."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def cores_of_others(work: Callable[[], object]) -> float:
    """Cores that other programs kept busy during `work`: on a busy machine a ratio depends on what they left."""
    busy, wall = -_others_s(), -time.perf_counter()
    work()
    return (busy + _others_s()) / (wall + time.perf_counter())


def _others_s() -> float:
    """CPU time of all programs but this one and its children that have ended."""
    times = cpu_times()
    assert times is not None
    return (times.total - times.idle - times.stolen) / CLOCK_TICKS - sum(os.times()[:4])


def trainer(folder: Path, name: str, *options: str, level: str | None = None) -> dict[str, float]:
    """Run the trainer once, recorded at `level` or bare; returns what it measured by itself."""
    result = folder / f"{name}.json"
    command = [sys.executable, "-m", "reference_trainer.lm", *options, "--result", str(result)]
    if level is not None:
        record = [sys.executable, "-m", "profiler", "run", "--level", level, "--out", str(folder / name), "--"]
        command = [*record, *command]
    subprocess.run(command, check=True, capture_output=True)
    return json.loads(result.read_text())


# ---------------------------------------------------------------- two workers

BAR = 1.7
"""Times that two workers on two cores are faster than one."""
BUSY = 0.1
"""Cores that other programs may use while two workers are measured."""
two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")


def check_two_workers(name: str, measure: Callable[[], Mapping[int, Sequence[float]]]) -> None:
    """Print how much faster two workers are; skip where they are too slow because other programs used the cores.

    :param measure: returns the seconds by one and by two workers.
    """
    times: dict[int, Sequence[float]] = {}
    busy = cores_of_others(lambda: times.update(measure()))
    faster = ratio(times[1], times[2])
    print(
        f"\n{name}: {statistics.median(times[1]):.2f} s by one worker, {statistics.median(times[2]):.2f} s by two; "
        f"ratio {faster}; other programs used {busy:.2f} cores meanwhile"
    )
    if faster.value < BAR and busy > BUSY:
        pytest.skip(f"inconclusive: {faster}, but other programs used {busy:.2f} cores")
    assert faster.value >= BAR, f"two workers are not worth it: {faster}"
