"""The sweep on a GPU at large students: as found against all cures, and how busy the device was with each.

    python tests/benchmarks/bench_gpu_sweep.py [--student-dims 512 1024] [--seconds 60] --out bench_gpu_sweep.json

writes one JSON object after each pair: of as many pairs as fit into that time, one at least. Every sweep is the trainer
as a program, by turns. Fits end at their caps, so that both do the same work, and as found it ends in time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from profiler.core.files import write_text
from tests.benchmarks.measure import Interval, ratio

SCHEMA = "ssm-gpu/1"
BUDGET = ("--gd-loss", "1e-9", "--epochs", "100", "--gnc-loss", "1e-9", "--max-guesses", "512")
KEPT = ("jobs", "done", "workers", "wall_s", "total_s", "jobs_per_s", "points", "memory_per_job", "devices")


def sweep(folder: Path, variant: str, options: tuple[str, ...]) -> dict[str, Any]:
    """The facts that the sweep reports."""
    result = folder / "result.json"
    command = [sys.executable, "-m", "reference_trainer.ssm", "--variant", variant, *options, "--result", str(result)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"error: {' '.join(command)}: {done.stderr.strip()[-400:]}")
    summary = json.loads(result.read_text())
    return {name: summary[name] for name in KEPT}


def measure(most: int, seconds: float, options: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The results after each pair; none is begun for which the longest one says that there is no time."""
    start, longest = time.monotonic(), 0.0
    pairs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        while not pairs or (len(pairs) < most and time.monotonic() - start + longest < seconds):
            began = time.monotonic()
            order = ("as-found", "fixed") if len(pairs) % 2 else ("fixed", "as-found")
            pairs.append({variant: sweep(Path(scratch), variant, options) for variant in order})
            yield {"schema": SCHEMA, "options": list(options), "pairs": pairs, **summed_up(pairs)}
            longest = max(longest, time.monotonic() - began)


def summed_up(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Times faster, without and with the start of workers, and the median utilisation of each device."""
    shown: dict[str, Any] = {}
    for name, key in (("times_faster", "wall_s"), ("times_faster_with_start", "total_s")):
        shown[name] = _plain(ratio([pair["as-found"][key] for pair in pairs], [pair["fixed"][key] for pair in pairs]))
    for variant in ("as-found", "fixed"):
        used = [pair[variant]["devices"] for pair in pairs]  # as found the least busy one, which may change
        names = sorted({name for devices in used for name in devices})
        shown[f"utilisation_{variant}"] = {
            name: _median([devices[name]["utilisation"] for devices in used if name in devices]) for name in names
        }
    return shown


def _plain(interval: Interval) -> dict[str, float | None]:
    """One pair has no interval."""
    known = interval.n > 1
    return {
        "value": interval.value,
        "low": interval.low if known else None,
        "high": interval.high if known else None,
        "pairs": interval.n,
    }


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--num-seeds", default="4")
    parser.add_argument("--student-dims", nargs="+", default=["512", "1024"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pairs", type=int, default=100, help="at most so many")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where the results go")
    arguments = parser.parse_args()
    sizes = ("--num-seeds", arguments.num_seeds, "--teacher-ranks", "1", "--student-dims", *arguments.student_dims)
    options = ("--device", arguments.device, *sizes, *BUDGET)
    for found in measure(arguments.pairs, arguments.seconds, options):
        write_text(arguments.out, json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
