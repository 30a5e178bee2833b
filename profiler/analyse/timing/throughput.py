"""Measures steps and tokens per second, and how the time of a step depends on the size of its batch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np

from profiler.analyse.intervals import Floats, covered_within, union
from profiler.analyse.model.input import BatchCurve
from profiler.analyse.model.measures import MIN_SAMPLES, Measure
from profiler.analyse.statistics import mean_interval
from profiler.analyse.timing.counters import counter_rows, step_numbers, sum_per_step
from profiler.analyse.timing.scheduler import thread_time
from profiler.analyse.window import NS_PER_S, Window, named_rows, select, thread_rows
from profiler.core.errors import Notice
from profiler.core.samples import BLOCKED_IN, BlockedIn
from profiler.run.model import Run, RunInfo, StepKind
from profiler.run.tables import BATCH_ITEMS

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


# ---------------------------------------------------------------- steps and the size of their batch

_MAKING: Final = ("dataset", "dataset map", "collate")
_LOADING: Final = ("data", "loader start")
_MIN_STEPS: Final = 5
"""Steps of each size from which their median has an interval of order statistics with 90% or more (94% with five)."""
_DIFFERENT: Final = 0.75
"""Largest ratio of two sizes between which a line is drawn. A choice: nearer sizes take about the same time."""


def making_waits(run: Run, window: Window, threads: Iterable[tuple[int, int]]) -> tuple[float, float] | None:
    """The shares of the time in which these threads (process and thread) make batches that they wait for files, and
    for sockets; None with too few samples. Time in which they wait for a core is not part of it: other programs would
    make it longer."""
    files = sockets = whole = 0.0
    count = 0
    samples, regions = named_rows(run, run.samples, BLOCKED_IN), named_rows(run, run.regions, *_MAKING)
    for pid, tid in threads:
        making = select(regions, (regions["pid"] == pid) & (regions["tid"] == tid))
        mine = samples[(samples["pid"] == pid) & (samples["tid"] == tid)]
        mine = mine[window.step_rows(mine["time"]) >= 0]
        at = mine["time"]
        inside = covered_within(union(making["begin"], making["end"]), at, at + 1) > 0
        values = mine["value"][inside].astype(np.int64)
        runnable = int((values == BlockedIn.NOTHING).sum())
        count += len(values)
        whole += len(values) - runnable * _core_wait(run, window, pid, tid)
        files += int((values == BlockedIn.FILE).sum())
        sockets += int((values == BlockedIn.SOCKET).sum())
    return (files / whole, sockets / whole) if count >= MIN_SAMPLES and whole else None


def _core_wait(run: Run, window: Window, pid: int, tid: int) -> float:
    """The share of the time in which a thread could run that it waits for a core; 0 if that was not sampled."""
    clocks = thread_time(run, pid, tid, window.spans)
    could_run = clocks.on_core + clocks.runnable if clocks else 0.0
    return clocks.runnable / could_run if clocks and could_run else 0.0


def batch_curve(run: Run, window: Window) -> BatchCurve | None:
    """A line through the times of steps with batches of two sizes, the most frequent one and another.

    None where hooks counted no items, or requests for batches end the steps: the step of the last batch of an epoch
    then has what follows the epoch too. No line where the program requests each batch in the step before its own, as
    Accelerate does: the last step of an epoch then requests one that does not come.
    """
    if not len(window) or (run.step is not None and run.step.kind is StepKind.LOADER):
        return None
    counted = counter_rows(run, window, BATCH_ITEMS)
    if counted is None:
        return None
    items, steps = sum_per_step(counted, window), step_numbers(counted, window)
    batches = np.bincount(steps[steps >= 0], minlength=len(window))
    regions = thread_rows(run.regions, window)
    loading = named_rows(run, regions, *_LOADING)
    seconds = (
        window.wall - covered_within(union(loading["begin"], loading["end"]), window.begin, window.end)
    ) / NS_PER_S
    requests = window.step_rows(named_rows(run, regions, "data")["begin"])
    counts = np.bincount(requests[requests >= 0], minlength=len(window))
    usual = counts == np.bincount(counts).argmax()
    # a step in which the loader starts again has what follows an epoch
    starts = window.step_rows(named_rows(run, regions, "loader start")["begin"])
    starting = np.bincount(starts[starts >= 0], minlength=len(window)) > 0
    reads_ahead = bool(((counts > batches) & ~starting).any())
    usual &= ~starting
    items, seconds = items[usual & (items > 0)], seconds[usual & (items > 0)]
    sizes, number = np.unique(items, return_counts=True)
    if not len(sizes):
        return None
    size = float(sizes[number.argmax()])
    others = [
        (float(other), int(count))
        for other, count in zip(sizes, number, strict=True)
        if count >= _MIN_STEPS and min(other, size) <= _DIFFERENT * max(other, size)
    ]
    if reads_ahead or not others or number.max() < _MIN_STEPS:
        return BatchCurve(size)
    other = max(others, key=lambda each: each[1])[0]
    return _line(size, _median(seconds[items == size]), other, _median(seconds[items == other]))


def _median(seconds: Floats) -> tuple[float, float, float]:
    """The median of a sample with its interval of about 95%, by order statistics."""
    ordered, n = np.sort(seconds), len(seconds)
    low = max(0, int(np.floor(n / 2 - 0.98 * np.sqrt(n))))
    return float(np.median(ordered)), float(ordered[low]), float(ordered[n - 1 - low])


def _line(size: float, time: tuple[float, float, float], other: float, there: tuple[float, float, float]) -> BatchCurve:
    """The line through two points, with the interval of where it begins."""

    def fixed(at_size: float, at_other: float) -> float:
        return at_size - (at_size - at_other) * size / (size - other)

    middle = fixed(time[0], there[0])
    # the ends are independent: their squares add up
    errors = [(time[end] - time[0]) * (1 - size / (size - other)) for end in (1, 2)]
    further = [(there[end] - there[0]) * size / (size - other) for end in (1, 2)]
    error = float(np.hypot(max(map(abs, errors)), max(map(abs, further))))
    return BatchCurve(size, other, time[0], there[0], middle, middle - error, middle + error)
