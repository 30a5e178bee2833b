"""Two ways of knowing the same thing, held against each other: counters against records. A disagreement is a note."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.counters import counter_sums
from profiler.analyse.device import busy_intervals, no_queue_reason
from profiler.analyse.hot import calls_in_steps
from profiler.analyse.resources import BUSY
from profiler.analyse.timeline import intersect
from profiler.analyse.window import Window
from profiler.core.notice import Notice
from profiler.run.model import Run, Table
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
DEBUG_SYNCS: Final = "debug_syncs"
DEBUG_SYNCS_SEEN: Final = "debug_syncs_seen"
"""What torch's sync debug mode warned of, and how many of these while a hook was in that operation."""
_RUNTIME: Final = re.compile(r"^(cuda|hip|cu)[A-Z]")
"""Names of the calls that a trace of the device's runtime brings; hooks use the words of the user."""
_COPIES: Final = (CallKind.H2D, CallKind.D2H)


def disagreements(run: Run, window: Window) -> tuple[Notice, ...]:
    """One line for each counter that the recorded calls or activities contradict, with both numbers; and how many of
    the syncs that other sources saw the hooks saw too: said whenever there is another source."""
    if not len(window):
        return ()
    return (*_calls(run, window), *_busy(run, window), *_debug_mode(run, window), *_runtime(run, window))


def _calls(run: Run, window: Window) -> list[Notice]:
    calls = calls_in_steps(run, window)
    by_runtime = _by_runtime(run, calls)
    if not by_runtime.all():
        calls = calls[~by_runtime]  # of a window of some steps only: counters are those of hooks and marks
    if not len(calls):
        return []
    kinds = calls["kind"]
    recorded = {name: float((kinds == kind).sum()) for name, kind in _KINDS.items()}
    recorded |= {name: float(calls["bytes"][kinds == kind].sum()) for name, kind in _BYTES.items()}
    recorded["syncs"] = float(_waiting(calls).sum())
    counted = {name: float(sums.sum()) for name, sums in counter_sums(run, window, recorded).items()}
    steps = len(window)
    return [
        Notice("counter-mismatch", {"name": name, "counted": counted[name] / steps, "recorded": recorded[name] / steps})
        for name in recorded
        if name in counted and counted[name] != recorded[name]
    ]


def _busy(run: Run, window: Window) -> list[Notice]:
    counted = counter_sums(run, window, (BUSY,)).get(BUSY)
    if counted is None or no_queue_reason(run, window):
        return []
    by_count = float(counted.sum()) / window.wall_ns
    by_activities = intersect(busy_intervals(run, window), window.spans).measure() / window.wall_ns
    if abs(by_count - by_activities) <= BUSY_TOLERANCE:
        return []
    return [Notice("busy-mismatch", {"counted": by_count, "recorded": by_activities})]


def _waiting(calls: Table) -> npt.NDArray[np.bool_]:
    """Which calls are syncs: those that blocked until the device finished, explicit or implied by a copy."""
    copies = np.isin(calls["kind"], (*_COPIES, CallKind.D2D))
    waiting: npt.NDArray[np.bool_] = (calls["kind"] == CallKind.SYNC) | (copies & (calls["blocked"] > 0))
    return waiting


def _by_runtime(run: Run, calls: Table) -> npt.NDArray[np.bool_]:
    """Which calls come from a trace of the device's runtime."""
    runtime = [number for number, name in enumerate(run.names) if _RUNTIME.match(name)]
    return np.isin(calls["name"], runtime)


def _debug_mode(run: Run, window: Window) -> list[Notice]:
    sums = counter_sums(run, window, (DEBUG_SYNCS, DEBUG_SYNCS_SEEN))
    if DEBUG_SYNCS not in sums:
        return []
    of, seen = float(sums[DEBUG_SYNCS].sum()), 0.0
    if DEBUG_SYNCS_SEEN in sums:
        seen = float(sums[DEBUG_SYNCS_SEEN].sum())
    return [Notice("debug-mode-syncs", {"seen": seen, "total": of})]


def _runtime(run: Run, window: Window) -> list[Notice]:
    """Hooks held against the runtime's own calls, where both recorded: a call of the runtime was seen when it lies in
    one of a hook, on the same thread."""
    calls = calls_in_steps(run, window)
    by_runtime = _by_runtime(run, calls)
    runtime, hooks = calls[by_runtime], calls[~by_runtime]
    hooks = hooks[np.isin(hooks["kind"], (CallKind.SYNC, CallKind.OTHER, *_COPIES))]
    if not len(runtime) or not len(hooks):
        return []
    lines = []
    for what, chosen in (("syncs", _waiting(runtime)), ("copies", np.isin(runtime["kind"], _COPIES))):
        seen = _within(runtime[chosen], hooks)
        if len(seen):
            lines.append(Notice("runtime-calls-seen", {"seen": int(seen.sum()), "total": len(seen), "kind": what}))
    return lines


def _within(inner: Table, outer: Table) -> npt.NDArray[np.bool_]:
    """Which calls of `inner` have their middle in one of `outer` on the same thread. Those of `outer` do not nest."""
    found = np.zeros(len(inner), np.bool_)
    for tid in np.unique(inner["tid"]).tolist():
        mine, around = inner["tid"] == tid, np.sort(outer[outer["tid"] == tid], order="begin")
        if not len(around):
            continue
        middle = (inner["begin"][mine] + inner["end"][mine]) // 2
        row = np.searchsorted(around["begin"], middle, "right") - 1
        found[mine] = (row >= 0) & (middle <= around["end"][row])
    return found
