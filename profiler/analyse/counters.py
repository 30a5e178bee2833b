"""What the program counted and gauged in the measured steps: X_per_step for every counter X, and gauges by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.model import Measure
from profiler.analyse.window import NO_QUEUE, Window, device_kind, of_process, select
from profiler.core.metrics import COUNTERS, PER_STEP, counter_unit
from profiler.core.notice import Notice
from profiler.run.model import Run, Table
from profiler.run.tables import ValueKind

EXPECTED_COUNTERS: Final = tuple(counter.name for counter in COUNTERS if counter.needs_device)
"""What a device counts; those that a run lacks are reported as not measured."""
EXPECTED_GAUGES: Final = ("loss", "accuracy")
SOURCE: Final = "counters"
_GAUGE_UNITS: Final = {"device_memory": "bytes"}


def counters(run: Run, window: Window) -> dict[str, Measure]:
    """Mean per measured step of every counter. A step that does not mention one counted 0 of it."""
    rows = _rows(run, window, ValueKind.COUNTER)
    known = {run.names[number]: number for number in np.unique(rows["name"]).tolist()}
    measures = {}
    for name in (*known, *(expected for expected in EXPECTED_COUNTERS if expected not in known)):
        full, unit = f"{name}{PER_STEP}", f"{counter_unit(name) or 1}/step"
        if not len(window):
            measures[full] = Measure(full, None, unit, reason=window.reason)
        elif name not in known:
            reason = NO_QUEUE if device_kind(run) == "cpu" else Notice("not-counted")
            measures[full] = Measure(full, None, unit, reason=reason)
        else:
            per_step = in_steps(rows[rows["name"] == known[name]], window)
            measures[full] = Measure(full, float(per_step.mean()), unit, n=len(window), source=SOURCE)
    return measures


def gauges(run: Run, window: Window) -> dict[str, Measure]:
    """Mean of every gauge over the measured steps that set it, weighted by their tokens where all of them have some."""
    rows = _rows(run, window, ValueKind.GAUGE)
    known = {run.names[number]: number for number in np.unique(rows["name"]).tolist()}
    measures = {}
    for name in (*known, *(expected for expected in EXPECTED_GAUGES if expected not in known)):
        unit = _GAUGE_UNITS.get(name, "1")
        if not len(window):
            measures[name] = Measure(name, None, unit, reason=window.reason)
        elif name not in known:
            measures[name] = Measure(name, None, unit, reason=Notice("no-gauge"))
        else:
            measures[name] = _gauge(name, unit, rows[rows["name"] == known[name]], window)
    return measures


def _gauge(name: str, unit: str, rows: Table, window: Window) -> Measure:
    step = rows_of_steps(rows, window)
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
    found = {name: rows[rows["name"] == number] for name, number in wanted.items()}
    return {name: in_steps(own, window) for name, own in found.items() if len(own)}


def in_steps(rows: Table, window: Window) -> npt.NDArray[np.float64]:
    """Sum of the rows' values in each measured step."""
    step = rows_of_steps(rows, window)
    inside = step >= 0
    return np.bincount(step[inside], rows["value"][inside], minlength=len(window)).astype(np.float64)


def rows_of_steps(rows: Table, window: Window) -> npt.NDArray[np.int64]:
    """Row of the window's step that each value belongs to, -1 for none."""
    index = window.steps["index"]
    order = np.argsort(index, kind="stable")
    at = np.searchsorted(index[order], rows["step"])
    at = np.minimum(at, len(index) - 1)
    return np.where(index[order][at] == rows["step"], order[at], -1)


def _rows(run: Run, window: Window, kind: ValueKind) -> Table:
    own = of_process(run.values, window) if len(window) else run.values
    return select(own, own["kind"] == kind)


def gauge_per_step(run: Run, window: Window, name: str) -> npt.NDArray[np.float64]:
    """The last value of a gauge in each measured step; NaN where it has none."""
    values = np.full(len(window), np.nan)
    rows = _rows(run, window, ValueKind.GAUGE)
    if name in run.names:
        rows = rows[rows["name"] == run.names.index(name)]
        step = rows_of_steps(rows, window)
        values[step[step >= 0]] = rows["value"][step >= 0]
    return values
