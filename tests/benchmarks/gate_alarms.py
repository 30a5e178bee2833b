"""How often the history finds a change of level where there is none, and where there is one, in simulated series.

    python -m tests.benchmarks.gate_alarms --series 2000

The series are simulated, because everything is known of their noise.
"""

from __future__ import annotations

import argparse

import numpy as np

from profiler.analyse.statistics import Floats, level_shifts

LENGTHS = (20, 40, 100)
STEPS = (2.0, 3.0)
"""Changes of level, in standard deviations of one result."""
WARMUP = 50
"""Values before a series begins, so that its first value is like any other."""


def correlated(random: np.random.Generator, length: int, correlation: float) -> Floats:
    """A first-order autoregressive process of variance 1."""
    noise = random.normal(size=length + WARMUP) * np.sqrt(1 - correlation**2)
    for index in range(1, len(noise)):
        noise[index] += correlation * noise[index - 1]
    return noise[WARMUP:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=2000, help="of each kind and length")
    parser.add_argument("--seed", type=int, default=21)
    args = parser.parse_args()
    random = np.random.default_rng(args.seed)
    kinds = {
        "independent, normal": lambda n: random.normal(size=n),
        "independent, Student's t of 3": lambda n: random.standard_t(3, n),
        "independent, log-normal": lambda n: random.lognormal(size=n),
        "correlation 0.3": lambda n: correlated(random, n, 0.3),
        "correlation 0.6": lambda n: correlated(random, n, 0.6),
    }
    for length in LENGTHS:
        for name, make in kinds.items():
            false = sum(bool(level_shifts(make(length))) for _ in range(args.series))
            print(f"{length:4} results, {name}: {false} of {args.series} without a change have one", flush=True)
    fewer = max(1, args.series // 10)
    for length in LENGTHS:
        change = round(0.6 * length)
        for step in STEPS:
            series = (random.normal(size=length) + step * (np.arange(length) >= change) for _ in range(fewer))
            shifts = [level_shifts(values) for values in series]
            near = sum(any(abs(shift.at - change) <= 2 for shift in found) for found in shifts)
            found = sum(map(bool, shifts))
            print(f"{length:4} results, {step:g} sd: {found} of {fewer} found, {near} within 2 results", flush=True)
    histories = (random.normal(size=120) for _ in range(fewer))
    ever = sum(any(level_shifts(values[:count]) for count in range(10, 121)) for values in histories)
    print(f"looked at after each of 120 results, independent: {ever} of {fewer} histories show one at some time")


if __name__ == "__main__":
    main()
