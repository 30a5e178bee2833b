"""Sums up what the program counted in the measured steps: counters, gauges, calls, steps, tokens and batches."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats, covered_within, times, union
from profiler.analyse.model.device import CallSite
from profiler.analyse.model.input import BatchCurve
from profiler.analyse.model.measures import Measure
from profiler.analyse.statistics import mean_interval
from profiler.analyse.window import (
    NO_QUEUE,
    NS_PER_S,
    Window,
    device_kind,
    has_name,
    named_rows,
    process_rows,
    select,
    thread_rows,
)
from profiler.core.errors import Notice
from profiler.core.metrics import COUNTERS, PER_STEP, counter_unit
from profiler.run.code_origin import library_sites
from profiler.run.filter import rows_by
from profiler.run.model import Run, RunInfo, StepKind, Table
from profiler.run.tables import (
    BATCH_ITEMS,
    BLOCK_OF_CHECKPOINT,
    CALLER_OF_CHECKPOINT,
    LINE_OF,
    MIGHT_SYNC,
    RECOMPILED,
    TOKENIZED,
    WORKER_OF,
    CallKind,
    ValueKind,
)

EXPECTED_COUNTERS: Final = tuple(counter.name for counter in COUNTERS if counter.needs_device)
"""Counters of a device; those that a run lacks are reported as not measured."""
NO_DEVICE: Final = "cpu"
"""Value of the fact `device` of a program that uses none, and of that part of a baseline's key."""
_HOOKS: Final = {
    **dict.fromkeys(("syncs", MIGHT_SYNC, "h2d", "d2h", "h2d_bytes", "d2h_bytes"), "tensors"),
    TOKENIZED: "",
    RECOMPILED: "dynamo",
}
"""Counter of the hooks -> the hook that must be installed. Launches and memory of plain torch have none."""
EXPECTED_GAUGES: Final = ("loss", "accuracy")
SOURCE: Final = "counters"
MAX_SITES: Final = 100
_NOT_CALLS: Final = (
    "dataset", "collate", WORKER_OF, TOKENIZED, RECOMPILED, CALLER_OF_CHECKPOINT, BLOCK_OF_CHECKPOINT, *LINE_OF.values()
)  # fmt: skip
"""Records of kind OTHER that only name a line or the parent of a worker: nothing was asked of a device."""
_GAUGE_UNITS: Final = {"device_memory": "bytes"}


def counters(run: Run, window: Window) -> dict[str, Measure]:
    """Return the mean per measured step of every counter. A step that does not mention one counted 0 of it."""
    counted = _values_by_name(run, window, ValueKind.COUNTER)
    zeros = _zero_counters(run) if len(window) else ()
    measures = {}
    for name in dict.fromkeys((*counted, *EXPECTED_COUNTERS, *zeros)):
        full, unit = f"{name}{PER_STEP}", f"{counter_unit(name) or 1}/step"
        if len(window) and (name in counted or name in zeros):
            mean = float(sum_per_step(counted[name], window).mean()) if name in counted else 0.0
            measures[full] = Measure(full, mean, unit, n=len(window), source=SOURCE)
        else:
            reason = NO_QUEUE if device_kind(run) == NO_DEVICE else Notice("not-counted")
            measures[full] = Measure(full, None, unit, reason=window.reason or reason)
    return measures


def active_counters(run: Run) -> tuple[str, ...]:
    """Counters that hooks would have counted had there been anything: without a record their amount is 0."""
    if "package" not in run.info.facts:  # no hook was installed
        return ()
    failed = {status.name.removeprefix("hook ") for status in run.info.collectors if status.state == "failed"}
    absent = (MIGHT_SYNC,) if run.info.is_counted else uncounted_on_cpu(run)
    return tuple(name for name, hook in _HOOKS.items() if hook not in failed and name not in absent)


def uncounted_on_cpu(run: Run, totals: Iterable[str] = ()) -> tuple[str, ...]:
    """Counters that are unknown rather than 0, since the run had no device and did not count them itself.

    :param totals: what it did count.
    """
    if run.info.facts.get("device") != NO_DEVICE or run.info.is_counted:
        return ()
    return tuple(name for name in EXPECTED_COUNTERS if name not in set(totals))


def _zero_counters(run: Run) -> tuple[str, ...]:
    """Active counters, where the program stated its device: calls sync on a GPU, and might sync without one."""
    if device_kind(run) not in (NO_DEVICE, "cuda"):
        return ()
    return tuple(name for name in active_counters(run) if name != MIGHT_SYNC or device_kind(run) == NO_DEVICE)


def gauges(run: Run, window: Window) -> dict[str, Measure]:
    """Return the mean of every gauge over the measured steps that set it, weighted by their tokens where all of them
    have some."""
    gauged = _values_by_name(run, window, ValueKind.GAUGE)
    measures = {}
    for name in dict.fromkeys((*gauged, *EXPECTED_GAUGES)):
        unit = _GAUGE_UNITS.get(name, "1")
        if len(window) and name in gauged:
            measures[name] = _gauge(name, unit, gauged[name], window)
        else:
            measures[name] = Measure(name, None, unit, reason=window.reason or Notice("no-gauge"))
    return measures


def _gauge(name: str, unit: str, rows: Table, window: Window) -> Measure:
    step = step_numbers(rows, window)
    values, step = rows["value"][step >= 0].astype(np.float64), step[step >= 0]
    if not len(values):
        return Measure(name, None, unit, reason=Notice("no-gauge-in-steps"))
    broken = int((~np.isfinite(values)).sum())
    if broken:
        reason = Notice("not-finite", {"broken": broken, "steps": len(values)})
        return Measure(name, None, unit, n=len(values), reason=reason)
    tokens = window.steps["tokens"][step].astype(np.float64)
    by_tokens = bool((tokens > 0).all())
    mean = float(np.average(values, weights=tokens if by_tokens else None))
    return Measure(name, mean, unit, n=len(values), source="gauges")


def counter_sums(run: Run, window: Window, names: Iterable[str]) -> dict[str, npt.NDArray[np.float64]]:
    """Return the amount in each measured step of those of `names` that were counted at all."""
    counted = _values_by_name(run, window, ValueKind.COUNTER)
    return {name: sum_per_step(counted[name], window) for name in names if name in counted}


def steady_launches(run: Run, window: Window) -> float:
    """Return the launches that three of four measured steps have at least; 0 where that is not known, or of a single
    step."""
    counts = counter_sums(run, window, ["launches"]).get("launches")
    return 0.0 if counts is None or len(window) < 2 else float(np.quantile(counts, 0.25, method="lower"))


def counter_rows(run: Run, window: Window, name: str) -> Table | None:
    """Return each amount that a counter of the stepping process got; None if it was not counted."""
    return _values_by_name(run, window, ValueKind.COUNTER).get(name)


def sum_per_step(rows: Table, window: Window) -> npt.NDArray[np.float64]:
    """Return the sum of the rows' values in each measured step."""
    step = step_numbers(rows, window)
    inside = step >= 0
    return np.bincount(step[inside], rows["value"][inside], minlength=len(window)).astype(np.float64)


def step_numbers(rows: Table, window: Window) -> npt.NDArray[np.int64]:
    """Return the row of the window's step that each value belongs to, by the number of the step; -1 for none."""
    index = window.steps["index"]
    order = np.argsort(index, kind="stable")
    at = np.searchsorted(index[order], rows["step"])
    at = np.minimum(at, len(index) - 1)
    return np.where(index[order][at] == rows["step"], order[at], -1)


def _values_by_name(run: Run, window: Window, kind: ValueKind) -> dict[str, Table]:
    rows = process_rows(run.values, window) if len(window) else run.values
    by_number = rows_by(select(rows, rows["kind"] == kind), "name")
    return {run.names[number]: values for number, values in by_number.items()}


def gauge_per_step(run: Run, window: Window, name: str) -> npt.NDArray[np.float64]:
    """Return the last value of a gauge in each measured step; NaN where it has none."""
    values = np.full(len(window), np.nan)
    rows = _values_by_name(run, window, ValueKind.GAUGE).get(name)
    if rows is not None:
        step = step_numbers(rows, window)
        values[step[step >= 0]] = rows["value"][step >= 0]
    return values


def call_counts(calls: Table) -> npt.NDArray[np.float64]:
    """Return how many calls each record stands for: one record is written for all reads by one line in one step."""
    counts = np.where(calls["kind"] == CallKind.MIGHT_SYNC, np.maximum(calls["bytes"], 1), 1)
    return counts.astype(np.float64)


def calls_in_steps(run: Run, window: Window) -> Table:
    """Return the calls of all threads of the stepping process that began in a measured step."""
    calls = process_rows(run.calls, window)
    inside: Table = calls[window.step_rows(calls["begin"]) >= 0]
    return inside


def call_sites(run: Run, window: Window, *, with_operations: bool) -> tuple[CallSite, ...]:
    """Return one row per line and kind of call, in runs with hooks per operation too; all threads, the most seconds
    first."""
    if not len(window):
        return ()
    calls = calls_in_steps(run, window)
    is_note = (calls["kind"] == CallKind.OTHER) & has_name(run, calls, *_NOT_CALLS)
    calls = calls[(calls["site"] >= 0) & ~is_note]
    shape = (len(run.sites), len(CallKind), len(run.names) + 1)
    if not len(calls):
        return ()
    name = calls["name"] + 1 if with_operations else np.zeros(len(calls), np.int64)
    keys, group = np.unique(np.ravel_multi_index((calls["site"], calls["kind"], name), shape), return_inverse=True)
    length = times(calls["end"]) - times(calls["begin"])
    size = np.where(calls["kind"] == CallKind.MIGHT_SYNC, 0, calls["bytes"])
    sums = [
        np.bincount(group, column)
        for column in (call_counts(calls), length, np.clip(calls["blocked"], 0, length), size)
    ]
    steps, rows = len(window), list[CallSite]()
    libraries = Counter(zip(group.ravel().tolist(), library_sites(run, calls), strict=True))
    library = {number: line for (number, line), _ in reversed(libraries.most_common()) if line is not None}
    parts = (part.tolist() for part in np.unravel_index(keys, shape))
    for number, (site, kind, name) in enumerate(zip(*parts, strict=True)):
        count, seconds, blocked, copied = (float(column[number]) for column in sums)
        rows.append(
            CallSite(
                site=run.sites[site],
                kind=CallKind(kind).name.lower(),
                operation=run.names[name - 1] if name else "",
                calls_per_step=count / steps,
                seconds_per_step=window.per_step(seconds),
                blocked_per_step=window.per_step(blocked),
                bytes_per_step=copied / steps,
                library=library.get(number),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.site, row.kind, row.operation))[:MAX_SITES])


# ---------------------------------------------------------------- steps, tokens and sizes of batches

TOKENS: Final = "tokens"
_WORD: Final = re.compile(r"[a-z]{1,20}")


def counted_unit(info: RunInfo) -> str:
    """Return the unit that the steps of a program count: tokens, or the one that it states."""
    unit = info.facts.get("unit")
    return unit if isinstance(unit, str) and _WORD.fullmatch(unit) else TOKENS


def throughput(window: Window, unit: str = TOKENS) -> dict[str, Measure]:
    """Return the measures of step boundaries. The interval of step_time takes steps as independent.

    :param unit: what steps count.
    """
    units = {"steps": "steps", "step_time": "s", "step_time_p50": "s", "step_time_p95": "s", "steps_per_s": "steps/s"}
    units["tokens_per_s"] = f"{unit}/s"
    if not len(window):
        missing = {name: Measure(name, None, kind, reason=window.reason) for name, kind in units.items()}
        return missing | {"steps": Measure("steps", 0, "steps", source="steps")}
    walls, total = window.wall / NS_PER_S, window.wall_ns / NS_PER_S
    count, tokens = len(window), int(window.steps["tokens"].sum())
    mean, low, high = mean_interval(walls)
    values = (float(count), mean, *np.percentile(walls, (50, 95)).tolist(), count / total, tokens / total)
    measures = {
        name: Measure(name, value, units[name], n=count, source="steps")
        for name, value in zip(units, values, strict=True)
    }
    measures["step_time"] = replace(measures["step_time"], low=low, high=high)
    if not tokens:
        reason = Notice("no-tokens", {"unit": unit})
        measures["tokens_per_s"] = Measure("tokens_per_s", None, f"{unit}/s", reason=reason)
    return measures


# ---------------------------------------------------------------- steps and the size of their batch

_LOADING: Final = ("data", "loader start")
_MIN_STEPS: Final = 5
"""Steps of each size from which their median has an interval of order statistics with 90% or more (94% with five)."""
_DIFFERENT: Final = 0.75
"""Largest ratio of two sizes between which a line is drawn. A choice: nearer sizes take about the same time."""


def batch_curve(run: Run, window: Window) -> BatchCurve | None:
    """Return a line through the times of steps with batches of two sizes, the most frequent one and another.

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
    """Return the median of a sample with its interval of about 95%, by order statistics."""
    ordered, n = np.sort(seconds), len(seconds)
    low = max(0, int(np.floor(n / 2 - 0.98 * np.sqrt(n))))
    return float(np.median(ordered)), float(ordered[low]), float(ordered[n - 1 - low])


def _line(size: float, time: tuple[float, float, float], other: float, there: tuple[float, float, float]) -> BatchCurve:
    """Return the line through two points, with the interval of where it begins."""

    def fixed(at_size: float, at_other: float) -> float:
        return at_size - (at_size - at_other) * size / (size - other)

    middle = fixed(time[0], there[0])
    # the ends are independent: their squares add up
    errors = [(time[end] - time[0]) * (1 - size / (size - other)) for end in (1, 2)]
    further = [(there[end] - there[0]) * size / (size - other) for end in (1, 2)]
    error = float(np.hypot(max(map(abs, errors)), max(map(abs, further))))
    return BatchCurve(size, other, time[0], there[0], middle, middle - error, middle + error)
