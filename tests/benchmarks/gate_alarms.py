"""How often the history finds a change of level where there is none, and where there is one: simulated series.

    python -m tests.benchmarks.gate_alarms --series 2000

Simulated and not measured: what is asked is how the test does on noise of which everything is known.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from profiler.check.changepoints import Floats, level_shifts

LENGTHS = (20, 40, 100)
STEPS = (2.0, 3.0)
"""Changes of level, in standard deviations of one result."""
WARM = 50
"""Values before a series begins, so that its first one is as any other."""


def alike(random: np.random.Generator, length: int, correlation: float) -> Floats:
    """A first-order process of variance 1."""
    noise = random.normal(size=length + WARM) * np.sqrt(1 - correlation**2)
    for k in range(1, len(noise)):
        noise[k] += correlation * noise[k - 1]
    return noise[WARM:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=2000, help="of each kind and length")
    parser.add_argument("--seed", type=int, default=21)
    args = parser.parse_args()
    random = np.random.default_rng(args.seed)
    kinds: dict[str, Callable[[int], Floats]] = {
        "independent, normal": lambda n: random.normal(size=n),
        "independent, Student's t of 3": lambda n: random.standard_t(3, n),
        "independent, log-normal": lambda n: random.lognormal(size=n),
        "correlation 0.3": lambda n: alike(random, n, 0.3),
        "correlation 0.6": lambda n: alike(random, n, 0.6),
    }
    for length in LENGTHS:
        for name, make in kinds.items():
            false = sum(bool(level_shifts(make(length))) for _ in range(args.series))
            print(f"{length:4} results, {name}: {false} of {args.series} without a change have one", flush=True)
    at = {length: round(0.6 * length) for length in LENGTHS}
    for length in LENGTHS:
        for step in STEPS:
            count, found, near = max(1, args.series // 10), 0, 0
            for _ in range(count):
                values = random.normal(size=length) + step * (np.arange(length) >= at[length])
                places = [shift.at for shift in level_shifts(values)]
                found += bool(places)
                near += any(abs(place - at[length]) <= 2 for place in places)
            print(f"{length:4} results, {step:g} sd: {found} of {count} found, {near} within 2 results", flush=True)
    histories, ever = max(1, args.series // 10), 0
    for _ in range(histories):
        values = random.normal(size=120)
        ever += any(level_shifts(values[:seen]) for seen in range(10, 121))
    print(f"looked at after each of 120 results, independent: {ever} of {histories} histories show one at some time")


if __name__ == "__main__":
    main()
