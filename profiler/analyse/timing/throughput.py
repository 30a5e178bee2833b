"""Measures throughput: steps, step time with its interval and percentiles, steps and tokens per second.

A program whose steps count something else than tokens names it by the fact `unit`, in one word (points).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import numpy as np

from profiler.analyse.model import Measure
from profiler.analyse.statistics import mean_interval
from profiler.analyse.window import NS_PER_S, Window
from profiler.core.notice import Notice
from profiler.run.model import RunInfo

SOURCE: Final = "steps"
TOKENS: Final = "tokens"
_WORD: Final = re.compile(r"[a-z]{1,20}")


def counted_unit(info: RunInfo) -> str:
    """The unit that the steps of a program count: tokens, or the one that it states."""
    unit = info.facts.get("unit")
    return unit if isinstance(unit, str) and _WORD.fullmatch(unit) else TOKENS


def throughput(window: Window, unit: str = TOKENS) -> dict[str, Measure]:
    """The measures of step boundaries. The interval of step_time takes steps as independent.

    :param unit: what steps count.
    """
    units = {"steps": "steps", "step_time": "s", "step_time_p50": "s", "step_time_p95": "s", "steps_per_s": "steps/s"}
    units["tokens_per_s"] = f"{unit}/s"
    if not len(window):
        missing = {name: Measure(name, None, kind, reason=window.reason) for name, kind in units.items()}
        return missing | {"steps": Measure("steps", 0, "steps", source=SOURCE)}
    walls, total = window.wall / NS_PER_S, window.wall_ns / NS_PER_S
    count, tokens = len(window), int(window.steps["tokens"].sum())
    mean, low, high = mean_interval(walls)
    values = (float(count), mean, *np.percentile(walls, (50, 95)).tolist(), count / total, tokens / total)
    measures = {
        name: Measure(name, value, units[name], n=count, source=SOURCE)
        for name, value in zip(units, values, strict=True)
    }
    measures["step_time"] = replace(measures["step_time"], low=low, high=high)
    if not tokens:
        reason = Notice("no-tokens", {"unit": unit})
        measures["tokens_per_s"] = Measure("tokens_per_s", None, f"{unit}/s", reason=reason)
    return measures
