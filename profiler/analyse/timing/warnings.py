"""Warnings about a run: what makes its numbers less certain, and sources that contradict each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import intersect, overlaps, times
from profiler.analyse.statistics import variation
from profiler.analyse.timing.breakdown import busy_intervals, no_queue_reason
from profiler.analyse.timing.counters import calls_in_steps, counter_sums
from profiler.analyse.timing.host_timeline import RECORDING
from profiler.analyse.timing.resources import BUSY, LACKED, mean_within, other_load
from profiler.analyse.timing.scheduler import STEAL
from profiler.analyse.window import NS_PER_S, Window, named_rows, thread_rows
from profiler.core.errors import Notice
from profiler.run.filter import rows_by
from profiler.run.model import HOOKS, Run, Table
from profiler.run.tables import CallKind

MIN_STEPS: Final = 5
"""Below this a mean of steps has no useful interval (t > 2.7 standard errors)."""
MIN_SECONDS: Final = 1.0
"""Below this a single interruption of some 10 ms shows in the second digit."""
MAX_DRIFT: Final = 0.2
MAX_SPREAD: Final = 0.3
MAX_STEAL: Final = 0.02
MAX_OTHER_LOAD: Final = 0.5
"""Mean cores used by other programs; from half a core on they compete on a machine of few cores."""
MIN_RECORDING_TIME: Final = 0.01
MAX_DROPPED: Final = 0.01
"""Share of a collector's records: shares of time by samples are not better than that anyway."""
DROPPED: Final = "activities_dropped"
_KINDS: Final = {
    "h2d": CallKind.H2D,
    "d2h": CallKind.D2H,
    "d2d": CallKind.D2D,
    "launches": CallKind.LAUNCH,
    "allocations": CallKind.ALLOC,
}
_BYTES: Final = {"h2d_bytes": CallKind.H2D, "d2h_bytes": CallKind.D2H}
BUSY_TOLERANCE: Final = 0.02
"""Share of wall time by which the device's own busy time may differ from its activities: one of them cuts an activity
that crosses the end of a step there, the other counts all of it. Activities also contain the time in which a device
that is a thread had no core."""
DEBUG_SYNCS: Final = "debug_syncs"
DEBUG_SYNCS_HOOKED: Final = "debug_syncs_seen"
"""Counters of warnings of torch's sync debug mode: all, and those within an operation that a hook recorded."""
_RUNTIME: Final = re.compile(r"^(cuda|hip|cu)[A-Z]")
"""Names of calls in a trace of the device's runtime; hooks use the names in the user's code."""
_COPIES: Final = (CallKind.H2D, CallKind.D2H)


def run_warnings(run: Run, window: Window) -> tuple[Notice, ...]:
    """Return what the tables of a run lack, how it ended, how steady its steps were, and what else ran on the
    machine."""
    return (*_recording(run), *_steps(run, window))


def _recording(run: Run) -> Iterator[Notice]:
    if run.info.state in ("failed", "interrupted"):
        yield Notice("ended-early", {"state": run.info.state, "exit_code": run.info.exit_code})
    yield from run.problems
    if note := run.info.facts.get("device_note"):
        yield Notice("text", {"text": str(note)})
    for status in run.info.collectors:
        complete = status.name == HOOKS and status.values.get("python") == status.values.get("torch")
        if status.state == "ok" and status.reason and not complete:
            yield Notice("collector", {"name": status.name, "reason": status.reason})
        if status.dropped > MAX_DROPPED * (status.records + status.dropped):
            values = {"name": status.name, "dropped": status.dropped, "records": status.records + status.dropped}
            yield Notice("collector-dropped", values)
    dropped = int(named_rows(run, run.values, DROPPED)["value"].max(initial=0))
    if dropped:
        yield Notice("activities-dropped", {"count": dropped})


def _steps(run: Run, window: Window) -> Iterator[Notice]:
    if not len(window):
        yield Notice("nothing-measured", {"reason": window.reason})
        return
    count, seconds = len(window), window.wall_ns / NS_PER_S
    if count < MIN_STEPS:
        yield Notice("few-steps", {"steps": count, "needed": MIN_STEPS})
    if seconds < MIN_SECONDS:
        yield Notice("short-window", {"seconds": seconds, "needed": MIN_SECONDS})
    if window.excluded:
        yield Notice("steps-excluded", {"steps": window.excluded})
    walls = window.wall.astype(np.float64)
    third = count // 3
    drift = float(walls[-third:].mean() / walls[:third].mean()) - 1 if third else 0.0
    if abs(drift) > MAX_DRIFT:
        yield Notice("drift", {"change": drift})
    if (spread := variation(walls)) > MAX_SPREAD:
        yield Notice("spread", {"spread": spread})
    regions = named_rows(run, thread_rows(run.regions, window), RECORDING)
    cut = overlaps(times(regions["begin"]), times(regions["end"]), window.spans)
    recording = float((cut.end - cut.begin).sum()) / window.wall_ns  # the breakdown has it as python
    if recording >= MIN_RECORDING_TIME:
        yield Notice("recording-time", {"share": recording})
    steal, load = mean_within(run, STEAL, window), other_load(run, window)
    if steal is not None and steal > MAX_STEAL:
        yield Notice("other-machines", {"share": steal})
    if load is not None and load > MAX_OTHER_LOAD:
        yield Notice("other-programs", {"used": load, "cores": run.info.host["cores"]})


def contradictions(run: Run, window: Window) -> tuple[Notice, ...]:
    """Counters that the recorded calls or activities contradict, and how many of the syncs that another source saw the
    hooks saw too (whether or not they are all of them)."""
    if not len(window) or run.is_trace:  # the counters of a trace are made from its calls
        return ()
    calls = calls_in_steps(run, window)
    runtime = np.isin(calls["name"], [number for number, name in enumerate(run.names) if _RUNTIME.match(name)])
    return (
        *_call_counters(run, window, calls if runtime.all() else calls[~runtime]),
        *_busy_counter(run, window),
        *_debug_mode(run, window),
        *_runtime_calls(calls[runtime], calls[~runtime]),
    )


def _call_counters(run: Run, window: Window, calls: Table) -> Iterator[Notice]:
    """Counters against `calls`: where a trace of some steps is among them, those of hooks and marks only."""
    if not len(calls):
        return
    kinds = calls["kind"]
    recorded = {name: float((kinds == kind).sum()) for name, kind in _KINDS.items()}
    recorded |= {name: float(calls["bytes"][kinds == kind].sum()) for name, kind in _BYTES.items()}
    recorded["syncs"] = float(_waiting(calls).sum())
    counted = {name: float(sums.sum()) for name, sums in counter_sums(run, window, recorded).items()}
    for name, amount in counted.items():
        if amount != recorded[name]:
            values = {"name": name, "counted": amount / len(window), "recorded": recorded[name] / len(window)}
            yield Notice("counter-mismatch", values)


def _busy_counter(run: Run, window: Window) -> Iterator[Notice]:
    sums = counter_sums(run, window, (BUSY, LACKED))
    if BUSY not in sums or no_queue_reason(run, window):
        return
    # an activity lasts as long as its command, also without a core
    by_counter, lacked = (float(sums[name].sum()) / window.wall_ns if name in sums else 0.0 for name in (BUSY, LACKED))
    by_activities = intersect(busy_intervals(run, window), window.spans).measure() / window.wall_ns
    if not -BUSY_TOLERANCE <= by_activities - by_counter <= BUSY_TOLERANCE + lacked:
        yield Notice("busy-mismatch", {"counted": by_counter, "recorded": by_activities})


def _waiting(calls: Table) -> npt.NDArray[np.bool_]:
    """Return which calls are syncs: those that blocked until the device finished, explicit or implied by a copy."""
    copies = np.isin(calls["kind"], (*_COPIES, CallKind.D2D))
    return np.asarray((calls["kind"] == CallKind.SYNC) | (copies & (calls["blocked"] > 0)))


def _debug_mode(run: Run, window: Window) -> Iterator[Notice]:
    sums = counter_sums(run, window, (DEBUG_SYNCS, DEBUG_SYNCS_HOOKED))
    if DEBUG_SYNCS in sums:
        hooked = float(sums.get(DEBUG_SYNCS_HOOKED, np.zeros(1)).sum())
        yield Notice("debug-mode-syncs", {"seen": hooked, "total": float(sums[DEBUG_SYNCS].sum())})


def _runtime_calls(runtime: Table, hooks: Table) -> Iterator[Notice]:
    """Hooks against the runtime's calls, where both were recorded: a hook saw a call of the runtime when that lies in
    one of the hook's, on the same thread."""
    hooks = hooks[np.isin(hooks["kind"], (CallKind.SYNC, CallKind.OTHER, *_COPIES))]
    if not len(hooks):
        return
    for kind, chosen in (("syncs", _waiting(runtime)), ("copies", np.isin(runtime["kind"], _COPIES))):
        inside = _within(runtime[chosen], hooks)
        if len(inside):
            yield Notice("runtime-calls-seen", {"seen": int(inside.sum()), "total": len(inside), "kind": kind})


def _within(inner: Table, outer: Table) -> npt.NDArray[np.bool_]:
    """Return which calls of `inner` have their middle in one of `outer` on the same thread. Those of `outer` do not
    nest."""
    inside = np.zeros(len(inner), np.bool_)
    for tid, around in rows_by(outer, "tid").items():
        around, mine = np.sort(around, order="begin"), inner["tid"] == tid
        middle = (inner["begin"][mine] + inner["end"][mine]) // 2
        row = np.searchsorted(around["begin"], middle, "right") - 1
        inside[mine] = (row >= 0) & (middle <= around["end"][row])
    return inside
