"""The cost of recording for two plain scripts, a small transformer and a tiny network, beside that of other tools.

    PEERS=/path/to/venv/bin/python pytest tests/benchmarks/bench_overhead.py -m '' -s

test_by_turns alternates each way of running a script with the bare script, while the other is frozen; the ratio is the
geometric mean over pairs of blocks, from PROCESSES pairs of processes. test_steps measures the start and the end in
whole runs: each round runs every configuration once, in shuffled order. All intervals are 95% intervals.
PROCESSES=6 (of other tools PEER_PROCESSES=3), PAIRS=12, ROUNDS=4, OVERHEAD_JSON=FILE for the figures.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.alternating import CONTROL, alternated
from tests.benchmarks.measure import Interval, mean_interval, ratio
from tests.benchmarks.overhead import BARE, CONFIGURATIONS, FailedError, interleaved, run_once, usable

ROUNDS = int(os.environ.get("ROUNDS", "4"))
PROCESSES = int(os.environ.get("PROCESSES", "6"))
PEER_PROCESSES = int(os.environ.get("PEER_PROCESSES", "3"))
PAIRS = int(os.environ.get("PAIRS", "12"))
STEPS = {"transformer.py": 100, "tiny.py": 1500}
"""Steps of a run of some 2.5 s; the script leaves the first fifth out."""
MOST = {
    "transformer.py": {"ours, light": 0.01, "ours, standard": 0.03},
    "tiny.py": {"ours, light": 0.05, "ours, standard": 0.10},
}
"""Share of a step."""
LEVELS = (BARE, "ours, light", "ours, standard")


@pytest.fixture(scope="module")
def figures() -> Iterator[dict[str, Any]]:
    """The results of the tests, which are written to the file OVERHEAD_JSON at the end."""
    found: dict[str, Any] = {"rounds": ROUNDS, "processes": PROCESSES, "pairs": PAIRS, "steps": STEPS, "most": MOST}
    yield found
    if "OVERHEAD_JSON" in os.environ:
        Path(os.environ["OVERHEAD_JSON"]).write_text(json.dumps(found, indent=1))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("script", STEPS)
def test_by_turns(script: str, tmp_path: Path, figures: dict[str, Any]) -> None:
    """The limits apply to these figures."""
    configurations, missing = usable()
    bare = configurations[0]
    others = [CONTROL, *(one for one in configurations[1:] if one.name != "ours, full")]  # it traces in the first steps
    seen: dict[str, list[list[float]]] = {one.name: [] for one in others}
    for number in range(PROCESSES):
        for one in others:
            if number >= PEER_PROCESSES and one.every > 1:
                continue
            try:
                seen[one.name].append(alternated(script, one, bare, tmp_path / f"{number}-{one.name}", PAIRS))
            except FailedError as error:
                if one.every == 1:
                    raise
                missing.append(str(error))
    print(f"\n\n{script}, by turns: time of a step over that of the bare script")
    costs = {name: _of_turns(ratios) for name, ratios in seen.items() if ratios}
    for name, cost in costs.items():
        alone = "" if len(seen[name]) >= _ENOUGH else "   (of turns alone: one process may be faster than another)"
        print(f"  {name:16} {_percent(cost):>26} {cost.n:6} pairs{_target(script, name)}{alone}")
    print("\n".join(f"  {line}" for line in missing))
    figures.setdefault("by turns", {})[script] = {
        name: {**asdict(cost), "ratios": seen[name]} for name, cost in costs.items()
    }
    control = costs[CONTROL.name]
    assert max(control.low, 1 / control.high) <= _NOTICED, f"the method sees what is not there: {control}"
    for name, most in MOST[script].items():
        assert costs[name].low <= 1 + most, f"{script}: {name} costs more than {most:.0%} of a step: {costs[name]}"


def _of_turns(processes: list[list[float]]) -> Interval:
    """The wider of two intervals: over pairs of blocks, and over the means of pairs of processes, since the speed of a
    process depends on its place in memory for its whole life."""
    pairs = [value for turns in processes for value in turns]
    ones = ratio(pairs, [1.0] * len(pairs))
    means = [ratio(turns, [1.0] * len(turns)).value for turns in processes]
    if len(means) < _ENOUGH:
        return ones
    of_processes = ratio(means, [1.0] * len(means))
    return max((ones, replace(of_processes, n=ones.n)), key=lambda one: one.high - one.low)


_ENOUGH = 3
_NOTICED = 1.01
"""A difference that does not matter."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("script", STEPS)
def test_steps(script: str, tmp_path: Path, figures: dict[str, Any]) -> None:
    configurations, missing = usable()
    rounds = interleaved(script, configurations, tmp_path, rounds=ROUNDS, steps=STEPS[script])
    bare = [one[BARE] for one in rounds]
    print(f"\n\n{script}: {statistics.median(run['mean_s'] for run in bare) * 1e3:.2f} ms a step when bare")
    print(f"  {'time over bare':16} {'mean step':>26} {'median step':>26} {'start':>8} {'end':>8} {'rounds':>6}")
    for one in configurations[1:]:
        pairs = [(turn[one.name], turn[BARE]) for turn in rounds if one.name in turn]
        if not pairs:
            missing.append(f"{one.name}: failed, see above")
            continue
        mean, median = (_over(pairs, key) for key in ("mean_s", "median_s"))
        start, end = (_later(pairs, key) for key in ("start_s", "end_s"))
        print(
            f"  {one.name:16} {_percent(mean):>26} {_percent(median):>26} {start.value:+7.2f}s {end.value:+7.2f}s"
            f" {mean.n:6}{_target(script, one.name)}"
        )
        figures.setdefault(script, {})[one.name] = {
            "mean": asdict(mean), "median": asdict(median), "start_s": asdict(start), "end_s": asdict(end)
        }  # fmt: skip
    figures[script]["runs"] = rounds
    print("\n".join(f"  {line}" for line in missing))


def test_wrapped_calls(tmp_path: Path, figures: dict[str, Any]) -> None:
    """The additional time of a call that a hook replaces, in the fastest block of calls of all rounds."""
    chosen = [one for one in CONFIGURATIONS if one.name in LEVELS]
    best: dict[str, dict[str, float]] = {one.name: {} for one in chosen}
    for number in range(3):
        for one in chosen:
            folder = tmp_path / f"{number}-{one.name}"
            for call, ns in run_once(one, "wrapped_calls.py", folder).items():
                if not call.endswith("_at"):
                    best[one.name][call] = min(ns, best[one.name].get(call, math.inf))
    figures["wrapped_calls"] = best
    print(f"\n\n  {'ns a call':20} {'bare':>8} {'+ light':>9} {'+ standard':>11}")
    for call, bare in best[BARE].items():
        light, standard = (best[name].get(call, math.nan) - bare for name in LEVELS[1:])
        print(f"  {call:20} {bare:8.0f} {light:+9.0f} {standard:+11.0f}")
    assert best["ours, light"]["item"] > best[BARE]["item"], "the hooks were not there"


def _over(pairs: Sequence[tuple[dict[str, float], dict[str, float]]], key: str) -> Interval:
    return ratio([late[key] for late, _ in pairs], [early[key] for _, early in pairs])


def _later(pairs: Sequence[tuple[dict[str, float], dict[str, float]]], key: str) -> Interval:
    """Mean of paired differences, in seconds."""
    return mean_interval([late[key] - early[key] for late, early in pairs])


def _percent(ratio: Interval) -> str:
    return f"{ratio.value - 1:+.1%} ({ratio.low - 1:+.1%} to {ratio.high - 1:+.1%})"


def _target(script: str, name: str) -> str:
    most = MOST[script].get(name)
    return "" if most is None else f"   target: {most:+.0%}"


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-m", "", "-s", *sys.argv[1:]]))
