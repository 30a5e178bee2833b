"""How fast: steps, step time with its interval and percentiles, steps and tokens a second."""

from __future__ import annotations

import numpy as np

from profiler.analyse.stats import mean_interval
from profiler.analyse.window import NS_PER_S, Window
from profiler.run.model import Measure

SOURCE = "step boundaries"
_UNITS = {
    "steps": "steps",
    "step_time": "s",
    "step_time_p50": "s",
    "step_time_p95": "s",
    "steps_per_s": "steps/s",
    "tokens_per_s": "tokens/s",
}


def throughput(window: Window) -> dict[str, Measure]:
    """The measures of step boundaries. The interval of step_time takes steps as independent."""
    count = len(window)
    if not count:
        missing = {name: Measure(name, None, unit, reason=window.reason) for name, unit in _UNITS.items()}
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
    measures = {name: Measure(name, value, _UNITS[name], n=count, source=SOURCE) for name, value in values.items()}
    measures["step_time"] = Measure("step_time", mean, "s", low, high, count, SOURCE)
    if not tokens:
        measures["tokens_per_s"] = Measure(
            "tokens_per_s", None, "tokens/s", reason="no step says how many tokens it had"
        )
    return measures
