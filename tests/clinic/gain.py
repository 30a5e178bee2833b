"""Measures what the cure of a case gains, by pairs of runs in alternating order."""

from __future__ import annotations

import json
import math
import platform
from statistics import fmean, stdev
from typing import Any, Final

import torch
from scipy.stats import t as student

from tests.clinic.case import Case
from tests.clinic.program import Ended, placed, start

CONFIDENCE: Final = 0.95


def measure(case: Case, pairs: int) -> dict[str, Any]:
    """The ratio of the times before and after the cure, with its interval: of wall time and of CPU time."""
    times: list[tuple[tuple[float, float], tuple[float, float]]] = []
    with placed(case) as ill, placed(case, is_cured=True) as cured:
        for number in range(pairs):
            order = (False, True) if number % 2 == 0 else (True, False)
            seconds = {
                is_cured: _seconds(case, start(case, cured if is_cured else ill, is_cured=is_cured))
                for is_cured in order
            }
            times.append((seconds[False], seconds[True]))
    clocks = {name: _ratio([(one[at], other[at]) for one, other in times]) for at, name in enumerate(("wall", "cpu"))}
    return clocks | {"pairs": times, "python": platform.python_version(), "torch": torch.__version__}


def write(case: Case, pairs: int) -> dict[str, Any]:
    """Measure, and keep the result beside the case."""
    result = measure(case, pairs)
    (case.folder / "measured.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _seconds(case: Case, ended: Ended) -> tuple[float, float]:
    if ended.exit_code not in (0, case.exit_code) or ended.seconds is None:
        raise ValueError(f"{case.name}: exit code {ended.exit_code}\n{ended.output[-1000:]}\n{ended.errors[-3000:]}")
    return ended.seconds


def _ratio(pairs: list[tuple[float, float]]) -> dict[str, float]:
    """The geometric mean of the ratios, with the interval of Student's t for their logarithms."""
    logs = [math.log(before / after) for before, after in pairs]
    half = float(student.ppf((1 + CONFIDENCE) / 2, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
    middle = fmean(logs)
    ends = {"gain": middle, "low": middle - half, "high": middle + half}
    return {name: round(math.exp(log), 3) for name, log in ends.items()}
