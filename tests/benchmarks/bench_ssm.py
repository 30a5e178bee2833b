"""What the cures of the sweep are worth: all of them, each alone, and two workers over one where all cures are on.

Every sweep is the trainer as a program, measured by itself: the measured part, and all of it with the start of workers
and compilation. Both are held to the bar, for it is the whole that one waits for. Rounds are interleaved, their
order changes from round to round. With KEEP=FOLDER every finished round is kept there, and those of earlier runs count
too: an interval takes more rounds than one sitting may have time for. Its first line says of which commit, commands
and settings its rounds are; those of others are refused. ROUNDS=0 looks at what is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reference_trainer.ssm.plan import fixes
from tests.benchmarks.bench_pretokenize import BUSY, others
from tests.benchmarks.measure import ratio

pytestmark = pytest.mark.timeout(3600)  # as found a round takes minutes
ROUNDS = int(os.environ.get("ROUNDS", "5"))
DEVICE = os.environ.get("DEVICE", "cpu")
KEEP = os.environ.get("KEEP")
AS_FOUND: tuple[str, ...] = ("--variant", "as-found")
FIXED: tuple[str, ...] = ("--variant", "fixed")
BAR = 20.0
"""Times faster, of all cures."""
LEAST_JOBS = 200
SWEEP = ("--num-seeds", "30", "--student-dims", "16", "64", "--gd-loss", "0.007", "--gnc-loss", "0.007")
"""Where this takes 2 minutes as found, it takes a fraction of a second with all cures, and the start of two workers
some seconds: it is a figure of the sweep with the start too."""
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


def rounds(name: str, ways: Mapping[str, Callable[[], Any]], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What each way gives, in ROUNDS interleaved rounds, after those that are kept.

    :param settings: what a kept round must have been measured with.
    """
    path = Path(KEEP, f"{name}.jsonl") if KEEP else None
    found = kept(path, settings) if path else []
    for _ in range(ROUNDS):
        order = list(ways) if len(found) % 2 else list(reversed(ways))
        found.append({way: ways[way]() for way in order})
        if path:
            with path.open("a") as file:
                file.write(json.dumps(found[-1]) + "\n")
    if not found:
        pytest.skip("ROUNDS=0, and none is kept")
    return found


def kept(path: Path, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rounds of the same commit, commands and settings; a new file is begun with them."""
    asked = {"commit": commit(), **settings}
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asked) + "\n")
        return []
    header, *found = (json.loads(line) for line in path.read_text().splitlines())
    other = [key for key in sorted(asked.keys() | header.keys()) if asked.get(key) != header.get(key)]
    if other:
        pytest.fail(f"{path}: its rounds are of another {', '.join(other)}: keep these elsewhere", pytrace=False)
    return found


def commit() -> str:
    """That of the project, and what tells apart how its programs differ from it."""
    git = partial(subprocess.run, cwd=Path(__file__).parents[2], check=True, capture_output=True)
    changed = git(["git", "diff", "HEAD", "--", "reference_trainer", "profiler"]).stdout
    head = git(["git", "rev-parse", "HEAD"]).stdout.decode().strip()
    return f"{head}+{hashlib.sha256(changed).hexdigest()[:12]}" if changed else head


def commands(*ways: Sequence[str]) -> dict[str, Any]:
    """What a kept round says of itself."""
    return {"device": DEVICE, "python": platform.python_version(), "commands": [" ".join(way) for way in ways]}


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
    options = {"found": (*AS_FOUND, *SWEEP), "fixed": (*FIXED, *SWEEP)}
    ways = {name: partial(seconds, tmp_path, seen, *given) for name, given in options.items()}
    found = rounds("all", ways, commands(*options.values()))
    jobs = found[-1]["found"]["jobs"]
    bars = {}
    print(f"\n{jobs} jobs, seconds as found and fixed, times faster:")
    for name, key in (("without the start of workers", "wall_s"), ("with it", "total_s")):
        before, after = times(found, "found", key), times(found, "fixed", key)
        bars[name] = ratio(before, after)
        print(f"{name}: {statistics.median(before):.1f} and {statistics.median(after):.2f}, {bars[name]}")
    if seen:
        other = differing(*seen.values())
        print(f"{len(other)} of {jobs} jobs came out otherwise: {other}")
        assert len(other) <= jobs / 100
    assert jobs >= LEAST_JOBS
    short = [f"{name}: {faster}" for name, faster in bars.items() if faster.low < BAR]
    assert not short, f"all cures together are not {BAR:g} times faster {'; '.join(short)}"


def test_each_cure_alone(tmp_path: Path) -> None:
    seen: dict[str, dict] = {}
    options: dict[str, tuple[str, ...]] = {"found": (*AS_FOUND, *SMALL)}
    options |= {name: ("--fixes", name, *SMALL) for name in fixes()}
    options["fixed"] = (*FIXED, *SMALL)
    ways = {name: partial(seconds, tmp_path, seen, *given) for name, given in options.items()}
    found = rounds("each", ways, commands(*options.values()))
    base = times(found, "found")
    print(f"\nas found {statistics.median(base):.2f} s, {found[-1]['found']['jobs']} jobs")
    for name in list(ways)[1:]:
        print(f"{name}: {ratio(base, times(found, name))} times faster")
    if seen:
        first, *rest = seen.values()
        assert not [job for one in rest for job in differing(first, one)]
    slower = [name for name in fixes() if ratio(base, times(found, name)).high < 1]
    assert not slower, f"slower than as found: {', '.join(slower)}"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_two_workers_over_one(tmp_path: Path) -> None:
    seen: dict[str, dict] = {}
    size = ("--num-seeds", os.environ.get("SEEDS", "100"))
    options = {count: (*FIXED, *size, "--workers", count) for count in ("1", "2")}
    ways = {name: partial(seconds, tmp_path, seen, *given) for name, given in options.items()}
    found: list[dict] = []
    busy = others(lambda: found.extend(rounds("workers", ways, commands(*options.values()))))
    faster = ratio(times(found, "1"), times(found, "2"))
    print(
        f"\n{found[-1]['1']['jobs']} jobs: {statistics.median(times(found, '1')):.2f} s by one worker, "
        f"{statistics.median(times(found, '2')):.2f} s by two; ratio {faster}; others used {busy:.2f} cores meanwhile"
    )
    if faster.value < TWO_WORKERS and busy > BUSY:
        pytest.skip(f"inconclusive: {faster}, but other programs used {busy:.2f} cores")
    assert faster.value >= TWO_WORKERS, f"two workers are not worth it: {faster}"
