"""Divides each step among exclusive host categories, to the nanosecond: the innermost wins.

The ledger covers the stepping thread. Time inside a region or call counts for its category. Time outside of any is
`unattributed`, until `profiler.analyse.sampling.attribute` divides it by stack samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats, Intervals, overlaps
from profiler.analyse.model.measures import (
    HOST_CATEGORIES,
    UNATTRIBUTED,
    WAIT_CATEGORIES,
    Measure,
)
from profiler.analyse.timing.host_timeline import CODE, HostTimeline
from profiler.analyse.timing.scheduler import ThreadTime
from profiler.analyse.window import LEVEL_LIGHT, Window
from profiler.core.errors import Notice
from profiler.core.machine import Throttling

NO_OPERATORS: Final = Notice("no-operators")
NO_CALLS: Final = Notice("no-device-calls")
_WITHOUT_CORE: Final = (CODE["core"], CODE["throttled"], CODE["gil"], CODE["ranks"])
"""Categories that contain no time in which the stepping thread could have run: it was blocked, or it is that time."""
_BLOCKING: Final = [CODE["gil"], CODE["ranks"], CODE["waiting"]]
"""Categories in which the thread cannot run."""
_CORELESS: Final = [CODE["core"], CODE["throttled"]]
_WORK: Final = [CODE["python"], CODE["framework"], CODE["compute"]]
_CLOCKS_AGREE: Final = 0.02
"""Share of the steps by which these may exceed the time in which the thread was blocked by its clocks, which are read
once in 10 ms."""
SOURCE: Final = "regions and calls"
SAMPLED_SOURCE: Final = "regions, calls and samples"


@dataclass(frozen=True, eq=False, slots=True)
class Strip:
    """ns of each measured step (row) in each of HOST_CATEGORIES (column); a row sums to the step's wall time."""

    ns: npt.NDArray[np.int64]
    crossings: int
    python_share: float = 0.0
    """Share of the unrecorded time that samples prove to be Python."""
    python_error: float = 0.0
    """Half of the 95% interval of what was moved to python, seconds per step; 0 where nothing was."""
    warning: Notice | None = None
    spread: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """The ends of the 95% interval of each category that samples divided, in ns over the window."""
    backward: npt.NDArray[np.int64] | None = None
    """The part of `ns` in backward, where ranks wait for each other, without time without a core."""


def recorded_strip(host: HostTimeline, window: Window) -> Strip:
    """Every measured step divided among the categories, from regions and calls alone."""
    segments, steps, kinds = host.segments, len(window), len(HOST_CATEGORIES)
    cut = overlaps(segments.begin, segments.end, Intervals(window.begin, window.end))
    cell = cut.right * kinds + host.category[cut.left]
    # float64 sums of whole ns are exact below 2**53 ns (104 days)
    sums = np.bincount(cell, cut.end - cut.begin, minlength=steps * kinds).astype(np.int64).reshape(steps, kinds)
    sums[:, CODE[UNATTRIBUTED]] += window.wall - sums.sum(axis=1)
    return Strip(sums, segments.crossings)


def take_stalls(ledger: Strip, stalled: npt.NDArray[np.int64]) -> Strip:
    """Take waits for the device in which it or the host had no core out of the syncs of each step.

    :param stalled: ns of each step.
    """
    ns, sync = ledger.ns.copy(), CODE["sync"]
    taken = np.minimum(ns[:, sync], stalled)
    ns[:, sync] -= taken
    ns[:, CODE["core"]] += taken
    return replace(ledger, ns=ns)


def take_core(ledger: Strip, delays: npt.NDArray[np.int64], throttling: Throttling, weights: Floats) -> Strip:
    """Take the time without a core out of the categories of each step, in proportion to their weighted time.

    :param delays: ns of each step in which the thread could have run and had no core.
    :param weights: for each category, up to 1, how much of its time is without a core relative to the others.
    """
    ns, core = ledger.ns.copy(), CODE["core"]
    delays = _within(delays, ns.sum(axis=1) - ns[:, _WITHOUT_CORE].sum(axis=1))
    for weight in (weights, np.ones(len(weights))):  # the clock is exact: if these are too small, all time counts
        part = ns * np.where(np.isin(np.arange(len(weights)), _WITHOUT_CORE), 0.0, weight)
        total = part.sum(axis=1)
        lacking = np.minimum(delays - (ns[:, core] - ledger.ns[:, core]), total)
        taken = np.floor(part * (lacking / np.maximum(total, 1.0))[:, None]).astype(np.int64)
        ns -= taken
        ns[:, core] += taken.sum(axis=1)
    before, after = (each.sum(axis=0).astype(np.float64) for each in (ledger.ns, ns))
    kept = np.divide(after, before, out=np.ones(len(before)), where=before > 0)
    spread = {
        name: (low * kept[CODE[name]], high * kept[CODE[name]])
        for name, (low, high) in ledger.spread.items()
        if name != "core"
    }
    backward = ledger.backward
    if backward is not None:
        backward = np.minimum(
            ns, backward * np.divide(ns, ledger.ns, out=np.ones(ns.shape), where=ledger.ns > 0)
        ).astype(np.int64)
        backward[:, core] = 0
    throttled = np.floor(ns[:, core] * throttling.share).astype(np.int64)
    ns[:, core] -= throttled
    ns[:, CODE["throttled"]] += throttled
    low, high = ledger.spread.get("core", (before[core], before[core]))
    low, high = after[core] - before[core] + low, after[core] - before[core] + high
    if throttling.high:
        spread["throttled"] = low * throttling.low, high * throttling.high
    if throttling.high or high > low:
        spread["core"] = low * (1 - throttling.high), high * (1 - throttling.low)
    return replace(ledger, ns=ns, spread=spread, backward=backward)


def _within(delays: npt.NDArray[np.int64], room: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The delays, of which what exceeds the `room` of a step counts in other steps: their sum is exact, but samples
    divide all steps alike, so a step of much delay seems to wait for the GIL or for other ranks as long as any other.
    """
    fitting = np.minimum(delays, room)
    spare, excess = room - fitting, float((delays - fitting).sum())
    moved: npt.NDArray[np.int64] = np.floor(spare * min(1.0, excess / max(1, spare.sum()))).astype(np.int64)
    return fitting + moved


def within_blocked(strip: Strip, clock: ThreadTime) -> Strip:
    """The strip with waits for no longer than the thread was blocked. What exceeds that could run: first it lacked a
    core, as long as the clock tells, then it worked, as a collective does that adds numbers up on its caller's thread.

    :param clock: of the stepping thread, over the same steps.
    """
    scale, waits = float(strip.ns.sum()) / clock.wall, strip.ns[:, _BLOCKING].sum(axis=1)
    excess = float(waits.sum()) - clock.blocked * scale
    if excess <= _CLOCKS_AGREE * strip.ns.sum():
        return strip
    ns, part = strip.ns.copy(), 1 - excess / float(waits.sum())
    ns[:, _BLOCKING] = np.floor(ns[:, _BLOCKING] * part).astype(np.int64)
    freed = waits - ns[:, _BLOCKING].sum(axis=1)
    coreless = max(0.0, clock.runnable * scale - float(ns[:, _CORELESS].sum()))
    without = np.floor(freed * min(1.0, coreless / excess)).astype(np.int64)
    ns[:, CODE["core"]] += without
    sums = strip.ns[:, _WORK].sum(axis=0)
    shares = sums / sums.sum() if sums.sum() else np.eye(len(_WORK))[_WORK.index(CODE["compute"])]
    parts = np.floor((freed - without)[:, None] * shares).astype(np.int64)
    parts[:, int(shares.argmax())] += freed - without - parts.sum(axis=1)
    ns[:, _WORK] += parts
    more, spread = (ns - strip.ns).sum(axis=0), dict(strip.spread)
    for name, (low, high) in strip.spread.items():
        code = CODE[name]
        spread[name] = (low * part, high * part) if code in _BLOCKING else (low + more[code], high + more[code])
    return replace(strip, ns=ns, spread=spread)


def breakdown(window: Window, ledger: Strip | None, calls: int) -> Mapping[str, Measure]:
    """Mean seconds per step of each category; None with the reason where this run cannot see it.

    :param ledger: None where there is nothing to divide (no measured step, level light).
    :param calls: how many runtime calls the stepping thread made.
    """
    if ledger is None:
        reason = window.reason or LEVEL_LIGHT
        usual = [name for name in HOST_CATEGORIES if name not in WAIT_CATEGORIES]
        return {name: Measure(name, None, "s", reason=reason) for name in usual}
    measures = {name: _measure(name, window, ledger, calls) for name in HOST_CATEGORIES}
    return {name: each for name, each in measures.items() if name not in WAIT_CATEGORIES or each.value}


def _measure(name: str, window: Window, ledger: Strip, calls: int) -> Measure:
    total = int(ledger.ns[:, CODE[name]].sum())
    if not total and name in ("framework", "compute") and name not in ledger.spread:
        return Measure(name, None, "s", reason=NO_OPERATORS)
    if not total and not calls and name in ("sync", "copy", "launch"):
        return Measure(name, None, "s", reason=NO_CALLS)
    value, low, high, source = window.per_step(total), None, None, SOURCE
    if name in ledger.spread:
        low, high = (window.per_step(end) for end in ledger.spread[name])
        source = SAMPLED_SOURCE
    elif name == "python" and ledger.python_share:
        source = SAMPLED_SOURCE
        if ledger.python_error:
            low, high = max(0.0, value - ledger.python_error), value + ledger.python_error
    return Measure(name, value, "s", low, high, len(window), source)
