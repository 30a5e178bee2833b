"""Throughput: steps, step time with its interval and percentiles, steps and tokens per second.

A program whose steps count something else than tokens names it by the fact `unit`, in one word (points).
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from profiler.analyse.model import Measure
from profiler.analyse.statistics import mean_interval
from profiler.analyse.window import NS_PER_S, Window
from profiler.core.notice import Notice
from profiler.run.model import RunInfo

SOURCE = "steps"
_UNITS = {
    "steps": "steps",
    "step_time": "s",
    "step_time_p50": "s",
    "step_time_p95": "s",
    "steps_per_s": "steps/s",
}
TOKENS: Final = "tokens"
_WORD: Final = re.compile(r"[a-z]{1,20}")


def counted_unit(info: RunInfo) -> str:
    """What the steps of a program count: tokens, or the unit that it states."""
    unit = info.facts.get("unit")
    return unit if isinstance(unit, str) and _WORD.fullmatch(unit) else TOKENS


def throughput(window: Window, unit: str = TOKENS) -> dict[str, Measure]:
    """The measures of step boundaries. The interval of step_time takes steps as independent.

    :param unit: what steps count.
    """
    count, units = len(window), {**_UNITS, "tokens_per_s": f"{unit}/s"}
    if not count:
        missing = {name: Measure(name, None, kind, reason=window.reason) for name, kind in units.items()}
        return missing | {"steps": Measure("steps", 0, "steps", source=SOURCE)}
    walls = window.wall / NS_PER_S
    mean, low, high = mean_interval(walls)
    p50, p95 = np.percentile(walls, (50, 95)).tolist()
    total, tokens = window.wall_ns / NS_PER_S, int(window.steps["tokens"].sum())
    values = {
        "steps": float(count),
        "step_time": mean,
        "step_time_p50": p50,
        "step_time_p95": p95,
        "steps_per_s": count / total,
        "tokens_per_s": tokens / total,
    }
    measures = {name: Measure(name, value, units[name], n=count, source=SOURCE) for name, value in values.items()}
    measures["step_time"] = Measure("step_time", mean, "s", low, high, count, SOURCE)
    if not tokens:
        reason = Notice("no-tokens", {"unit": unit})
        measures["tokens_per_s"] = Measure("tokens_per_s", None, f"{unit}/s", reason=reason)
    return measures
