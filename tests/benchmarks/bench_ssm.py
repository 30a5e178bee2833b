"""What the cures of the sweep are worth: all of them, each alone, and two workers over one where all cures are on.

Every sweep is the trainer as a program, measured by itself; start of workers and compilation are told apart. Rounds are
interleaved, their order changes from round to round. With KEEP=FOLDER every finished round is kept there, and those of
earlier runs count too: an interval takes more rounds than one sitting may have time for.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reference_trainer.ssm.cures import fixes
from tests.benchmarks.bench_pretokenize import BUSY, others
from tests.benchmarks.measure import ratio

ROUNDS = int(os.environ.get("ROUNDS", "5"))
DEVICE = os.environ.get("DEVICE", "cpu")
KEEP = os.environ.get("KEEP")
AS_FOUND: tuple[str, ...] = ("--variant", "as-found")
FIXED: tuple[str, ...] = ("--variant", "fixed")
BAR = 20.0
"""Times faster, of all cures."""
LEAST_JOBS = 200
TWO_WORKERS = 1.7
CLOSE = 2e-3
"""Relative: losses of the same job in two variants."""
SMALL = ("--num-seeds", "4", "--teacher-ranks", "1", "2", "--student-dims", "16", "128")
"""A sweep for each cure alone: the most that a cure leaves as it was is as slow as found."""


def run(folder: Path, *options: str) -> dict[str, Any]:
    """Run a sweep; its summary, and its outcomes by job."""
    result, results = folder / "result.json", folder / "results.jsonl"
    results.unlink(missing_ok=True)
    command = [sys.executable, "-m", "reference_trainer.ssm", "--device", DEVICE, *options]
    subprocess.run([*command, "--result", str(result), "--results", str(results)], check=True, capture_output=True)
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    outcomes = {tuple(row[name] for name in ("method", "rank", "dim", "seed")): row for row in rows if "fitted" in row}
    return {**json.loads(result.read_text()), "outcomes": outcomes}


def rounds(name: str, ways: Mapping[str, Callable[[], Any]]) -> list[dict[str, Any]]:
    """What each way gives, in ROUNDS interleaved rounds, after those that are kept."""
    path = Path(KEEP, f"{name}.jsonl") if KEEP else None
    found = [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []
    for _ in range(ROUNDS):
        order = list(ways) if len(found) % 2 else list(reversed(ways))
        found.append({way: ways[way]() for way in order})
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(json.dumps(found[-1]) + "\n")
    return found


def seconds(folder: Path, seen: dict[str, dict], *options: str) -> dict[str, float]:
    """Of a sweep: the measured part, and all of it; `seen` keeps the outcomes."""
    summary = run(folder, *options)
    seen[" ".join(options)] = summary["outcomes"]
    return {"wall_s": summary["wall_s"], "total_s": summary["total_s"], "jobs": summary["done"]}


def differing(one: Mapping[tuple, Mapping[str, Any]], other: Mapping[tuple, Mapping[str, Any]]) -> list[tuple]:
    """Jobs that came out otherwise."""
    assert one.keys() == other.keys()
    return [
        job
        for job in one
        if (one[job]["epochs"], one[job]["guesses"]) != (other[job]["epochs"], other[job]["guesses"])
        or float(one[job]["train_loss"]) != pytest.approx(float(other[job]["train_loss"]), rel=CLOSE, nan_ok=True)
    ]


def times(found: Sequence[Mapping[str, Any]], way: str, key: str = "wall_s") -> list[float]:
    return [one[way][key] for one in found]


def test_all_cures_over_as_found(tmp_path: Path) -> None:
    seen: dict[str, dict] = {}
    ways = {"found": partial(seconds, tmp_path, seen, *AS_FOUND), "fixed": partial(seconds, tmp_path, seen, *FIXED)}
    found = rounds("all", ways)
    jobs = found[-1]["found"]["jobs"]
    faster = ratio(times(found, "found"), times(found, "fixed"))
    whole = ratio(times(found, "found", "total_s"), times(found, "fixed", "total_s"))
    print(
        f"\n{jobs} jobs: {statistics.median(times(found, 'found')):.1f} s as found, "
        f"{statistics.median(times(found, 'fixed')):.2f} s fixed; ratio {faster}; with the start {whole}"
    )
    if seen:
        other = differing(*seen.values())
        print(f"{len(other)} of {jobs} jobs came out otherwise: {other}")
        assert len(other) <= jobs / 100
    assert jobs >= LEAST_JOBS
    assert faster.low >= BAR, f"all cures together: {faster}"


def test_each_cure_alone(tmp_path: Path) -> None:
    seen: dict[str, dict] = {}
    ways = {"found": partial(seconds, tmp_path, seen, *AS_FOUND, *SMALL)}
    ways |= {name: partial(seconds, tmp_path, seen, "--fixes", name, *SMALL) for name in fixes()}
    ways["fixed"] = partial(seconds, tmp_path, seen, *FIXED, *SMALL)
    found = rounds("each", ways)
    base = times(found, "found")
    print(f"\nas found {statistics.median(base):.2f} s, {found[-1]['found']['jobs']} jobs")
    for name in list(ways)[1:]:
        print(f"{name}: {ratio(base, times(found, name))} times faster")
    first, *rest = seen.values()
    assert not [job for one in rest for job in differing(first, one)]
    slower = [name for name in fixes() if ratio(base, times(found, name)).high < 1]
    assert not slower, f"slower than as found: {', '.join(slower)}"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_two_workers_over_one(tmp_path: Path) -> None:
    seen: dict[str, dict] = {}
    size = ("--num-seeds", os.environ.get("SEEDS", "100"))
    ways = {count: partial(seconds, tmp_path, seen, *FIXED, *size, "--workers", count) for count in ("1", "2")}
    found: list[dict] = []
    busy = others(lambda: found.extend(rounds("workers", ways)))
    faster = ratio(times(found, "1"), times(found, "2"))
    print(
        f"\n{found[-1]['1']['jobs']} jobs: {statistics.median(times(found, '1')):.2f} s by one worker, "
        f"{statistics.median(times(found, '2')):.2f} s by two; ratio {faster}; others used {busy:.2f} cores meanwhile"
    )
    if faster.value < TWO_WORKERS and busy > BUSY:
        pytest.skip(f"inconclusive: {faster}, but other programs used {busy:.2f} cores")
    assert faster.value >= TWO_WORKERS, f"two workers are not worth it: {faster}"
