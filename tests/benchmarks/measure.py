"""What the benchmarks share: runs of the trainer, bare or recorded, and ratios over interleaved pairs."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler.analyse.statistics import student_t


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
    logs = [math.log(late / early) for late, early in zip(after, before, strict=True)]
    mean, n = statistics.fmean(logs), len(logs)
    margin = student_t(n - 1) * statistics.stdev(logs) / math.sqrt(n) if n > 1 else math.inf
    return Interval(math.exp(mean), math.exp(mean - margin), math.exp(mean + margin), n)


def trainer(folder: Path, name: str, *options: str, level: str | None = None) -> dict[str, float]:
    """Run the trainer once, recorded at `level` or bare; what it measured by itself."""
    result = folder / f"{name}.json"
    command = [sys.executable, "-m", "reference_trainer.lm", *options, "--result", str(result)]
    if level is not None:
        record = [sys.executable, "-m", "profiler", "run", "--level", level, "--out", str(folder / name), "--"]
        command = [*record, *command]
    subprocess.run(command, check=True, capture_output=True)
    return json.loads(result.read_text())
