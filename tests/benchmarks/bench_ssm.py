"""What the fixes of the sweep are worth: all of them, each alone, and two workers over one where all fixes are on.

Every sweep is the trainer as a program, measured by itself: the measured part, and the whole with the start of workers
and compilation. Both must reach the bar, since people wait for the whole. Rounds are interleaved, and their order
changes from round to round. With KEEP=FOLDER every finished round is stored there, and those of earlier runs count too:
an interval takes more rounds than one sitting may have time for. The first line of a file tells of which commit,
commands and settings its rounds are; other rounds are refused. ROUNDS=0 shows the stored rounds.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reference_trainer.ssm.plan import fixes
from tests.benchmarks.measure import check_two_workers, ratio, two_cores

pytestmark = pytest.mark.timeout(3600)  # as found a round takes minutes
ROUNDS = int(os.environ.get("ROUNDS", "5"))
DEVICE = os.environ.get("DEVICE", "cpu")
KEEP = os.environ.get("KEEP")
AS_FOUND: tuple[str, ...] = ("--variant", "as-found")
FIXED: tuple[str, ...] = ("--variant", "fixed")
BAR = 20.0
"""Times that all fixes together must be faster."""
LEAST_JOBS = 200
SWEEP = ("--num-seeds", "30", "--student-dims", "16", "64", "--gd-loss", "0.007", "--gnc-loss", "0.007")
"""It takes 2 minutes as found; with all fixes it takes a fraction of a second, and the start of two workers some
seconds, which is why the whole is measured too."""
CLOSE = 2e-3
"""Relative: losses of the same job in two variants."""
SMALL = ("--num-seeds", "4", "--teacher-ranks", "1", "2", "--student-dims", "16", "128")
"""A sweep for each fix alone, which leaves most of the sweep as slow as found."""

Outcomes = dict[tuple, dict[str, Any]]
"""Result rows by job."""


def sweep(folder: Path, outcomes: dict[str, Outcomes], options: Sequence[str]) -> dict[str, float]:
    """Run a sweep: its seconds and number of jobs. `outcomes` gets its results."""
    result, results = folder / "result.json", folder / "results.jsonl"
    results.unlink(missing_ok=True)
    command = [sys.executable, "-m", "reference_trainer.ssm", "--device", DEVICE, *options]
    subprocess.run([*command, "--result", str(result), "--results", str(results)], check=True, capture_output=True)
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    job = ("method", "rank", "dim", "seed")
    outcomes[" ".join(options)] = {tuple(row[name] for name in job): row for row in rows if "fitted" in row}
    summary = json.loads(result.read_text())
    return {"wall_s": summary["wall_s"], "total_s": summary["total_s"], "jobs": summary["done"]}


def rounds(
    name: str, folder: Path, ways: Mapping[str, Sequence[str]]
) -> tuple[list[dict[str, Any]], dict[str, Outcomes]]:
    """The seconds of each way in ROUNDS interleaved rounds, after the stored ones; and the outcomes of the new ones."""
    outcomes: dict[str, Outcomes] = {}
    path = Path(KEEP, f"{name}.jsonl") if KEEP else None
    found = stored(path, [" ".join(options) for options in ways.values()]) if path else []
    for _ in range(ROUNDS):
        order = list(ways) if len(found) % 2 else list(reversed(ways))
        found.append({way: sweep(folder, outcomes, ways[way]) for way in order})
        if path:
            with path.open("a") as file:
                file.write(json.dumps(found[-1]) + "\n")
    if not found:
        pytest.skip("ROUNDS=0, and none is stored")
    return found, outcomes


def stored(path: Path, commands: Sequence[str]) -> list[dict[str, Any]]:
    """Rounds of the same commit, commands and settings, with which a new file begins."""
    header = {"commit": commit(), "device": DEVICE, "python": platform.python_version(), "commands": list(commands)}
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(header) + "\n")
        return []
    first, *found = (json.loads(line) for line in path.read_text().splitlines())
    other = [key for key in sorted(header.keys() | first.keys()) if header.get(key) != first.get(key)]
    if other:
        pytest.fail(f"{path}: its rounds have another {', '.join(other)}: store these elsewhere", pytrace=False)
    return found


def commit() -> str:
    """The project's commit, with a checksum of changes to its programs."""
    git = partial(subprocess.run, cwd=Path(__file__).parents[2], check=True, capture_output=True)
    changed = git(["git", "diff", "HEAD", "--", "reference_trainer", "profiler"]).stdout
    head = git(["git", "rev-parse", "HEAD"]).stdout.decode().strip()
    return f"{head}+{hashlib.sha256(changed).hexdigest()[:12]}" if changed else head


def differing(one: Outcomes, other: Outcomes) -> list[tuple]:
    """Jobs with other results."""
    assert one.keys() == other.keys()
    return [
        job
        for job in one
        if (one[job]["epochs"], one[job]["guesses"]) != (other[job]["epochs"], other[job]["guesses"])
        or float(one[job]["train_loss"]) != pytest.approx(float(other[job]["train_loss"]), rel=CLOSE, nan_ok=True)
    ]


def times(found: Sequence[Mapping[str, Any]], way: str, key: str = "wall_s") -> list[float]:
    return [one[way][key] for one in found]


def test_all_fixes_over_as_found(tmp_path: Path) -> None:
    found, outcomes = rounds("all", tmp_path, {"found": (*AS_FOUND, *SWEEP), "fixed": (*FIXED, *SWEEP)})
    jobs = found[-1]["found"]["jobs"]
    faster = {}
    print(f"\n{jobs} jobs, seconds as found and fixed, times faster:")
    for name, key in (("without the start of workers", "wall_s"), ("with it", "total_s")):
        before, after = times(found, "found", key), times(found, "fixed", key)
        faster[name] = ratio(before, after)
        print(f"{name}: {statistics.median(before):.1f} and {statistics.median(after):.2f}, {faster[name]}")
    if outcomes:
        other = differing(*outcomes.values())
        print(f"{len(other)} of {jobs} jobs have other results: {other}")
        assert len(other) <= jobs / 100
    assert jobs >= LEAST_JOBS
    assert all(seen.low >= BAR for seen in faster.values()), f"all fixes together are not {BAR:g} times faster"


def test_each_fix_alone(tmp_path: Path) -> None:
    alone = {name: ("--fixes", name, *SMALL) for name in fixes()}
    ways = {"found": (*AS_FOUND, *SMALL), **alone, "fixed": (*FIXED, *SMALL)}
    found, outcomes = rounds("each", tmp_path, ways)
    base = times(found, "found")
    print(f"\nas found {statistics.median(base):.2f} s, {found[-1]['found']['jobs']} jobs")
    faster = {name: ratio(base, times(found, name)) for name in (*alone, "fixed")}
    for name, seen in faster.items():
        print(f"{name}: {seen} times faster")
    first, *others = outcomes.values() or [{}]
    assert not [job for other in others for job in differing(first, other)]
    slower = [name for name in alone if faster[name].high < 1]
    assert not slower, f"slower than as found: {', '.join(slower)}"


@two_cores
def test_two_workers_over_one(tmp_path: Path) -> None:
    size = ("--num-seeds", os.environ.get("SEEDS", "100"))
    ways = {count: (*FIXED, *size, "--workers", count) for count in ("1", "2")}

    def measure() -> dict[int, list[float]]:
        found, _ = rounds("workers", tmp_path, ways)
        return {int(count): times(found, count) for count in ways}

    check_two_workers("a sweep", measure)
