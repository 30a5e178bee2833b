"""Two ways of knowing the same thing, held against each other: counters against records. A disagreement is a note."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler.analyse.counters import counter_sums
from profiler.analyse.device import busy_intervals, no_queue_reason
from profiler.analyse.hot import calls_in_steps
from profiler.analyse.resources import BUSY
from profiler.analyse.timeline import intersect
from profiler.analyse.window import Window
from profiler.run.model import Run
from profiler.run.tables import CallKind

_KINDS: Final = {
    "h2d": CallKind.H2D,
    "d2h": CallKind.D2H,
    "d2d": CallKind.D2D,
    "launches": CallKind.LAUNCH,
    "allocations": CallKind.ALLOC,
}
_BYTES: Final = {"h2d_bytes": CallKind.H2D, "d2h_bytes": CallKind.D2H}
BUSY_TOLERANCE: Final = 0.02
"""Share of wall by which the device's own busy time may differ from its activities: an activity that crosses a step's
end is cut there by one and counted whole by the other."""


def disagreements(run: Run, window: Window) -> tuple[str, ...]:
    """One line for each counter that the recorded calls or activities contradict, with both numbers."""
    if not len(window):
        return ()
    return (*_calls(run, window), *_busy(run, window))


def _calls(run: Run, window: Window) -> list[str]:
    calls = calls_in_steps(run, window)
    if not len(calls):
        return []
    kinds = calls["kind"]
    recorded = {name: float((kinds == kind).sum()) for name, kind in _KINDS.items()}
    recorded |= {name: float(calls["bytes"][kinds == kind].sum()) for name, kind in _BYTES.items()}
    # a sync is any call that blocked until the device finished: explicit, or implied by a copy
    copies = np.isin(kinds, (CallKind.H2D, CallKind.D2H, CallKind.D2D))
    recorded["syncs"] = float(((kinds == CallKind.SYNC) | (copies & (calls["blocked"] > 0))).sum())
    counted = {name: float(sums.sum()) for name, sums in counter_sums(run, window, recorded).items()}
    steps = len(window)
    return [
        f"counter {name} says {counted[name] / steps:,.6g} per step, the recorded calls {recorded[name] / steps:,.6g}"
        for name in recorded
        if name in counted and counted[name] != recorded[name]
    ]


def _busy(run: Run, window: Window) -> list[str]:
    counted = counter_sums(run, window, (BUSY,)).get(BUSY)
    if counted is None or no_queue_reason(run, window):
        return []
    by_count = float(counted.sum()) / window.wall_ns
    by_activities = intersect(busy_intervals(run, window), window.spans).measure() / window.wall_ns
    if abs(by_count - by_activities) <= BUSY_TOLERANCE:
        return []
    return [f"the device counts {by_count:.1%} of its time as busy, its recorded activities {by_activities:.1%}"]
