"""Divides each step among exclusive host categories, and tells when the device was busy and with what.

The strip covers the stepping thread, to the nanosecond: the innermost region or call wins. Time outside of any is
`unattributed`, until `profiler.analyse.sampling.attribute` divides it by stack samples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats, Intervals, intersect, overlaps, subtract, union
from profiler.analyse.model.device import DevicePart, KernelTime
from profiler.analyse.model.measures import DEVICE_CATEGORIES, HOST_CATEGORIES, UNATTRIBUTED, WAIT_CATEGORIES, Measure
from profiler.analyse.timing.host_timeline import CODE, HostTimeline
from profiler.analyse.timing.scheduler import ThreadTime
from profiler.analyse.window import LEVEL_LIGHT, NO_QUEUE, Window, device_kind, process_rows
from profiler.core.errors import Notice
from profiler.core.machine import Throttling
from profiler.run.filter import rows_by
from profiler.run.model import Run, Table
from profiler.run.tables import ActivityKind

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
    """Return every measured step divided among the categories, from regions and calls alone."""
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
    """Return the delays, of which what exceeds the `room` of a step counts in other steps: their sum is exact, but
    samples divide all steps alike, so a step of much delay seems to wait for the GIL or for other ranks as long as any
    other."""
    fitting = np.minimum(delays, room)
    spare, excess = room - fitting, float((delays - fitting).sum())
    moved: npt.NDArray[np.int64] = np.floor(spare * min(1.0, excess / max(1, spare.sum()))).astype(np.int64)
    return fitting + moved


def within_blocked(strip: Strip, clock: ThreadTime) -> Strip:
    """Return the strip with waits for no longer than the thread was blocked. What exceeds that could run: first it
    lacked a core, as long as the clock tells, then it worked, as a collective does that adds numbers up on its caller's
    thread.

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
    """Return the mean seconds per step of each category; None with the reason where this run cannot see it.

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


# ---------------------------------------------------------------- the device

NO_ACTIVITIES: Final = Notice("no-activities")
_CATEGORIES: Final[tuple[tuple[str, tuple[ActivityKind, ...]], ...]] = (
    ("compute", (ActivityKind.KERNEL,)),
    ("copy", (ActivityKind.H2D, ActivityKind.D2H, ActivityKind.D2D, ActivityKind.MEMSET)),
    ("communication", (ActivityKind.COMMUNICATION,)),
)
"""The categories in order of precedence: what runs at the same time as a kernel is hidden behind it."""
ACTIVITY_CATEGORIES: Final[Mapping[int, str]] = {kind: name for name, kinds in _CATEGORIES for kind in kinds}
"""Kind of an activity -> device category."""


def no_queue_reason(run: Run, window: Window) -> Notice | None:
    """Return why this run cannot say when the device was busy; None when it can."""
    if device_kind(run) == "cpu":
        return NO_QUEUE
    if window.reason:
        return window.reason
    if not len(process_rows(run.activities, window)):
        return LEVEL_LIGHT if run.info.level == "light" else NO_ACTIVITIES
    return None


def busy_intervals(run: Run, window: Window) -> Intervals:
    """Return when any stream of any device of the stepping process was occupied."""
    activities = process_rows(run.activities, window)
    return union(activities["begin"], activities["end"])


def busy_by_device(run: Run, window: Window) -> dict[int, Intervals]:
    """Return when each device that the stepping process used was occupied, by number of the device."""
    return {number: union(rows["begin"], rows["end"]) for number, rows in _activities_by_device(run, window).items()}


def _activities_by_device(run: Run, window: Window) -> dict[int, Table]:
    return rows_by(process_rows(run.activities, window), "device")


def device_warnings(run: Run, window: Window) -> Iterable[Notice]:
    """Yield a warning that says how busy each device was, if the process used several."""
    if not len(window) or no_queue_reason(run, window):
        return
    devices = busy_by_device(run, window).items()
    busy = tuple((number, intersect(times, window.spans).measure() / window.wall_ns) for number, times in devices)
    if len(busy) > 1:
        yield Notice("several-devices", {"busy": busy})


def device_parts(run: Run, window: Window) -> tuple[DevicePart, ...]:
    """Return the device's time by kind of work and of memory; what an earlier kind occupies at the same time is
    hidden."""
    if no_queue_reason(run, window):
        return ()
    parts: dict[tuple[str, str], tuple[int, int]] = {}
    devices = _activities_by_device(run, window).values()
    titles = [(number, memory.title()) for number, memory in enumerate(_MEMORIES) if memory]
    memory_of = np.array([next((number for number, title in titles if title in name), 0) for name in run.names] or [0])
    for rows in devices:
        remaining = window.spans
        for kind in _PART_KINDS:
            of_kind = rows[rows["kind"] == kind]
            memories = memory_of[of_kind["name"]]
            for number in np.unique(memories).tolist():
                chosen = of_kind[memories == number]
                busy = intersect(window.spans, union(chosen["begin"], chosen["end"]))
                key = _PART_NAMES.get(kind, kind.name.lower()), _MEMORIES[number]
                total, exposed = parts.get(key, (0, 0))
                parts[key] = total + busy.measure(), exposed + intersect(remaining, busy).measure()
                remaining = subtract(remaining, busy)
    whole = window.wall_ns * max(1, len(devices))
    return tuple(DevicePart(*key, total / whole, exposed / whole) for key, (total, exposed) in parts.items() if total)


def float32_product_share(run: Run, window: Window) -> float:
    """Return the share of the wall time in which a device computes matrix products or convolutions in float32, without
    tensor cores, by the names that NVIDIA's libraries give their kernels; several devices are averaged."""
    if no_queue_reason(run, window):
        return 0.0
    is_product = np.array(
        [bool(_FLOAT32_PRODUCT.search(name)) and "tensorop" not in name for name in run.names] or [False]
    )
    devices = _activities_by_device(run, window).values()
    busy = 0
    for rows in devices:
        chosen = rows[(rows["kind"] == ActivityKind.KERNEL) & is_product[rows["name"]]]
        busy += intersect(window.spans, union(chosen["begin"], chosen["end"])).measure()
    return busy / (window.wall_ns * max(1, len(devices)))


_FLOAT32_PRODUCT: Final = re.compile(
    r"(^|_)s(gemm|cudnn)_|simt_sgemm|gemm_f32f32_f32f32_f32|convolve_sgemm<float|cudnn::.*[dw]grad\w*_engine<float"
)
"""cuBLAS and cuDNN: `volta_sgemm_64x64_tn`, `cudnn_ampere_scudnn_128x64_relu_...`, `implicit_convolve_sgemm<float, `.
Kernels with tensor cores are named `tensorop`, `s884`, `s1688`, `s16816`, `tf32` or `h`."""
MAX_KERNELS: Final = 15
"""Kernels of a run that are told apart."""


def kernel_times(run: Run, window: Window) -> tuple[KernelTime, ...]:
    """Return the MAX_KERNELS kernels with most time in the measured steps; communication is a kernel too."""
    if no_queue_reason(run, window):
        return ()
    activities = process_rows(run.activities, window)
    rows = activities[np.isin(activities["kind"], (ActivityKind.KERNEL, ActivityKind.COMMUNICATION))]
    cut = overlaps(rows["begin"], rows["end"], window.spans)
    names = rows["name"][cut.left]
    seconds = np.bincount(names, cut.end - cut.begin, minlength=len(run.names))
    # a kernel that crosses the end of a stretch is one call
    calls = np.bincount(rows["name"][np.unique(cut.left)], minlength=len(run.names))
    total = float(seconds.sum()) or 1.0
    largest = [number for number in np.argsort(-seconds, kind="stable")[:MAX_KERNELS].tolist() if seconds[number] > 0]
    return tuple(
        KernelTime(
            run.names[number],
            float(calls[number]) / len(window),
            window.per_step(float(seconds[number])),
            float(seconds[number]) / total,
        )
        for number in largest
    )


_PART_KINDS: Final = tuple(kind for _, kinds in _CATEGORIES for kind in kinds)
_PART_NAMES: Final[Mapping[ActivityKind, str]] = {ActivityKind.KERNEL: "compute"}
_MEMORIES: Final = ("", "pageable", "pinned")


def device_breakdown(run: Run, window: Window) -> Mapping[str, Measure]:
    """Return the mean seconds per step of each of DEVICE_CATEGORIES; they sum to its wall time. Several devices are
    averaged."""
    reason = no_queue_reason(run, window)
    if reason:
        return {name: Measure(name, None, "s", reason=reason) for name in DEVICE_CATEGORIES}
    parts = dict.fromkeys(DEVICE_CATEGORIES, 0.0)
    devices = _activities_by_device(run, window).values()
    for rows in devices:
        remaining = window.spans
        for name, kinds in _CATEGORIES:
            chosen = rows[np.isin(rows["kind"], kinds)]
            busy = union(chosen["begin"], chosen["end"])
            parts[name] += intersect(remaining, busy).measure() / len(devices)
            remaining = subtract(remaining, busy)
        parts["idle"] += remaining.measure() / len(devices)
    return {
        name: Measure(name, window.per_step(ns), "s", n=len(window), source="activities") for name, ns in parts.items()
    }
