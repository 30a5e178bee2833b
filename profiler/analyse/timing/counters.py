"""What the program counted, gauged and called in the measured steps.

X_per_step for every counter X, gauges by name, and the lines with calls toward the device.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import times
from profiler.analyse.model import CallSite, Measure
from profiler.analyse.window import NO_QUEUE, Window, device_kind, process_rows, select
from profiler.core.metrics import COUNTERS, PER_STEP, counter_unit
from profiler.core.notice import Notice
from profiler.run.model import Run, Table
from profiler.run.tables import RECOMPILED, TOKENIZED, WORKER_OF, CallKind, ValueKind

EXPECTED_COUNTERS: Final = tuple(counter.name for counter in COUNTERS if counter.needs_device)
"""What a device counts; those that a run lacks are reported as not measured."""
EXPECTED_GAUGES: Final = ("loss", "accuracy")
SOURCE: Final = "counters"
MAX_SITES: Final = 100
_NOT_CALLS: Final = ("dataset", "collate", WORKER_OF, TOKENIZED, RECOMPILED)
"""Records of kind OTHER that only name a line or the parent of a worker: nothing was asked of a device."""
_GAUGE_UNITS: Final = {"device_memory": "bytes"}


def counters(run: Run, window: Window) -> dict[str, Measure]:
    """Mean per measured step of every counter. A step that does not mention one counted 0 of it."""
    rows = _rows(run, window, ValueKind.COUNTER)
    numbers = {run.names[number]: number for number in np.unique(rows["name"]).tolist()}
    measures = {}
    for name in dict.fromkeys((*numbers, *EXPECTED_COUNTERS)):
        full, unit = f"{name}{PER_STEP}", f"{counter_unit(name) or 1}/step"
        if not len(window):
            measures[full] = Measure(full, None, unit, reason=window.reason)
        elif name not in numbers:
            reason = NO_QUEUE if device_kind(run) == "cpu" else Notice("not-counted")
            measures[full] = Measure(full, None, unit, reason=reason)
        else:
            per_step = sum_per_step(rows[rows["name"] == numbers[name]], window)
            measures[full] = Measure(full, float(per_step.mean()), unit, n=len(window), source=SOURCE)
    return measures


def gauges(run: Run, window: Window) -> dict[str, Measure]:
    """Mean of every gauge over the measured steps that set it, weighted by their tokens where all of them have some."""
    rows = _rows(run, window, ValueKind.GAUGE)
    numbers = {run.names[number]: number for number in np.unique(rows["name"]).tolist()}
    measures = {}
    for name in dict.fromkeys((*numbers, *EXPECTED_GAUGES)):
        unit = _GAUGE_UNITS.get(name, "1")
        if not len(window):
            measures[name] = Measure(name, None, unit, reason=window.reason)
        elif name not in numbers:
            measures[name] = Measure(name, None, unit, reason=Notice("no-gauge"))
        else:
            measures[name] = _gauge(name, unit, rows[rows["name"] == numbers[name]], window)
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
    """Amount in each measured step of those of `names` that were counted at all."""
    rows = _rows(run, window, ValueKind.COUNTER)
    wanted = {name: run.names.index(name) for name in names if name in run.names}
    by_name = {name: rows[rows["name"] == number] for name, number in wanted.items()}
    return {name: sum_per_step(own_rows, window) for name, own_rows in by_name.items() if len(own_rows)}


def sum_per_step(rows: Table, window: Window) -> npt.NDArray[np.float64]:
    """Sum of the rows' values in each measured step."""
    step = step_numbers(rows, window)
    inside = step >= 0
    return np.bincount(step[inside], rows["value"][inside], minlength=len(window)).astype(np.float64)


def step_numbers(rows: Table, window: Window) -> npt.NDArray[np.int64]:
    """Row of the window's step that each value belongs to, by the number of the step; -1 for none."""
    index = window.steps["index"]
    order = np.argsort(index, kind="stable")
    at = np.searchsorted(index[order], rows["step"])
    at = np.minimum(at, len(index) - 1)
    return np.where(index[order][at] == rows["step"], order[at], -1)


def _rows(run: Run, window: Window, kind: ValueKind) -> Table:
    rows = process_rows(run.values, window) if len(window) else run.values
    return select(rows, rows["kind"] == kind)


def gauge_per_step(run: Run, window: Window, name: str) -> npt.NDArray[np.float64]:
    """The last value of a gauge in each measured step; NaN where it has none."""
    values = np.full(len(window), np.nan)
    rows = _rows(run, window, ValueKind.GAUGE)
    if name in run.names:
        rows = rows[rows["name"] == run.names.index(name)]
        step = step_numbers(rows, window)
        values[step[step >= 0]] = rows["value"][step >= 0]
    return values


def calls_in_steps(run: Run, window: Window) -> Table:
    """Calls of all threads of the stepping process that began in a measured step."""
    calls = process_rows(run.calls, window)
    inside: Table = calls[window.step_rows(calls["begin"]) >= 0]
    return inside


def call_sites(run: Run, window: Window, *, with_operations: bool) -> tuple[CallSite, ...]:
    """One row per line and kind of call, in runs with hooks per operation too; all threads, the most seconds first."""
    if not len(window):
        return ()
    calls = calls_in_steps(run, window)
    ignored = [number for number, name in enumerate(run.names) if name in _NOT_CALLS]
    calls = calls[(calls["site"] >= 0) & ~((calls["kind"] == CallKind.OTHER) & np.isin(calls["name"], ignored))]
    shape = (len(run.sites), len(CallKind), len(run.names) + 1)
    if not len(calls):
        return ()
    name = calls["name"] + 1 if with_operations else np.zeros(len(calls), np.int64)
    keys, group = np.unique(np.ravel_multi_index((calls["site"], calls["kind"], name), shape), return_inverse=True)
    length = times(calls["end"]) - times(calls["begin"])
    sums = [
        np.bincount(group, column) for column in (None, length, np.clip(calls["blocked"], 0, length), calls["bytes"])
    ]
    steps, rows = len(window), []
    parts = (part.tolist() for part in np.unravel_index(keys, shape))
    for number, (site, kind, name) in enumerate(zip(*parts, strict=True)):
        count, seconds, blocked, size = (float(column[number]) for column in sums)
        rows.append(
            CallSite(
                site=run.sites[site],
                kind=CallKind(kind).name.lower(),
                operation=run.names[name - 1] if name else "",
                calls_per_step=count / steps,
                seconds_per_step=window.per_step(seconds),
                blocked_per_step=window.per_step(blocked),
                bytes_per_step=size / steps,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.site, row.kind, row.operation))[:MAX_SITES])
