"""Measures what the cure of a case gains: by pairs of runs in alternating order, or by the counts of a CUDA program."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import sys
from statistics import fmean, stdev
from typing import Any, Final

import torch
from scipy.stats import t as student

from tests.clinic.case import Case
from tests.clinic.program import Ended, placed, start
from tests.clinic.told import read_told

CONFIDENCE: Final = 0.95
_RUN: Final = (sys.executable, "-m", "profiler", "run")
VIRTUAL: Final = (*_RUN, "--virtual-cuda", "--out", "../run", "--")
COUNTED: Final = (*_RUN, "--count", "--out", "../run", "--")


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
    of = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), "torch": torch.__version__}
    return clocks | {"pairs": times} | of


def count(case: Case) -> dict[str, Any]:
    """The counts of one step before and after the cure, as far as the case promises them."""
    told = []
    for is_cured in (False, True):
        with placed(case, is_cured=is_cured) as folder:
            _check(case, start(case, folder, before=VIRTUAL if case.is_cuda else COUNTED, is_cured=is_cured))
            told.append(read_told(folder.parent / "run").counts)
    return {"counts": {name: [each[name] for each in told] for name in case.counts.model_dump(exclude_none=True)}}


def write(case: Case, pairs: int) -> dict[str, Any]:
    """Measure, and keep the result beside the case: an error where the printed code is known to fail."""
    try:
        result = count(case) if case.is_counted else measure(case, pairs)
    except ValueError as error:
        if case.is_cured_by_print:
            raise
        result = {"error": _last_error(str(error))}
    if case.prints:
        result["cure"] = case.added()
    case.measured_path.parent.mkdir(exist_ok=True)
    case.measured_path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _seconds(case: Case, ended: Ended) -> tuple[float, float]:
    _check(case, ended)
    if ended.seconds is None:
        raise ValueError(f"{case.name}: prints no line `trained in ... s, ... s of CPU`")
    return ended.seconds


def _last_error(text: str) -> str:
    """The last line that names an exception, else the last one."""
    lines = text.strip().splitlines()
    named = [line for line in lines[1:] if re.match(r"[\w.]+: \S", line)]
    return (named or lines)[-1]


def _check(case: Case, ended: Ended) -> None:
    if ended.exit_code != case.exit_code:
        raise ValueError(f"{case.name}: exit code {ended.exit_code}\n{ended.output[-1000:]}\n{ended.errors[-3000:]}")


def _ratio(pairs: list[tuple[float, float]]) -> dict[str, float]:
    """The geometric mean of the ratios, with the interval of Student's t for their logarithms."""
    logs = [math.log(before / after) for before, after in pairs]
    half = float(student.ppf((1 + CONFIDENCE) / 2, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
    middle = fmean(logs)
    ends = {"gain": middle, "low": middle - half, "high": middle + half}
    return {name: round(math.exp(log), 3) for name, log in ends.items()}
