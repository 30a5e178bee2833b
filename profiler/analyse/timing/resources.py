"""Measures what the run used: CPU of the host and of the device's threads, device utilization, peak memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from profiler.analyse.intervals import Floats, Times, covered_within, overlaps, times
from profiler.analyse.model.comparison import WITHOUT_CORE
from profiler.analyse.model.measures import Measure, Series
from profiler.analyse.timing.breakdown import busy_by_device, no_queue_reason
from profiler.analyse.timing.counters import counted_unit, counter_sums, gauge_per_step
from profiler.analyse.timing.scheduler import STEAL, time_without_core
from profiler.analyse.window import (
    NS_PER_S,
    Window,
    device_kind,
    device_window,
    has_name,
    named_rows,
    process_rows,
    thread_rows,
)
from profiler.core.errors import Notice
from profiler.run.filter import rows_by
from profiler.run.model import Run, Table
from profiler.run.tables import GARBAGE_COLLECTION

RSS: Final = "process.rss"
ANONYMOUS: Final = "process.anonymous"
_MIN_GROWTH_SAMPLES: Final = 12
"""Samples of memory from which a trend is told: four in each third of a run."""
_MIN_GROWTH_S: Final = 5.0
"""Seconds of steps from which a trend is told. A choice: first steps and a first epoch fill caches and pools."""
_STEADY: Final = 3.0
"""How many times as fast as the whole memory may grow in a third of the run, or as slowly: beyond, it is no trend."""
PEAK_RSS: Final = "process.peak_rss"
CPU_S: Final = "process.cpu_s"
FAULTS, SYSTEM_S = "thread.minor_faults", "thread.system_s"
_MANY_PAGES: Final = 4096.0
"""Pages per step from which they are reported: 16 MiB, which take the kernel some 6 ms (1.4 µs each, measured on a
virtual machine)."""
BUSY, LACKED = "device_busy_ns", "device_lacked_ns"
"""Counters of a device: the time in which it worked, and the time in which other threads had its core. Only the host
device, which is a thread, counts the second one."""
GPU_BUSY: Final = "gpu.util"
SAMPLED: Final = "nvml"
"""Short gaps between kernels are not seen: at most this much of the time was the device busy."""
LEAST_CPU: Final = 0.005
"""Cores that processes use which only wait, such as those that Python itself starts."""
MAX_POINTS: Final = 240
"""The number of points that a plot of a report's width can show."""
GAUGES: Final = ("loss", "accuracy", "heldout_loss", "heldout_accuracy")
"""Gauges of what a model has learned, on training text and on held-out text."""
RECORD_S, CLOCKS_S = 8e-6, 20e-6
"""Seconds of the stepping thread for each of its records, and for each reading of its clocks. Measured as CPU time of
its thread, with the recorder taken out in alternate blocks of 20 steps (torch 2.13, one thread, level standard): 64 to
79 µs for 3 records in a step of 0.9 to 1.7 ms, 72 to 159 µs for 8 in one of 0.3 to 2.0 ms, 202 to 278 µs for 8 in one
of 7 to 9 ms, with 0.2 to 2.9 readings (Xeon, busy caches). On an EPYC, 43 to 68 µs for 8. The figures are low ones of
these, because what they take out is not in any step that a user sees."""
NO_BUSY_TIME: Final = Notice("no-busy-time")


def resources(run: Run, window: Window) -> dict[str, Measure]:
    """Return host_cpu, device_cpu, children_cpu, cpu_time, device_utilization, peak_memory, and without_core where it
    was measured, gc_time where there were collections, memory_growth where memory grows, page_faults and kernel_time
    where each step gets much new memory."""
    if len(window):
        measures = (
            *_cpu(window), _children_cpu(run, window), _utilization(run, window), *_without_core(run, window),
            _peak_memory(run), *_garbage_collections(run, window), *_memory_growth(run, window),
            *_page_faults(run, window),
        )  # fmt: skip
        return {measure.name: measure for measure in measures}
    units = {"host_cpu": "cores", "device_cpu": "cores", "children_cpu": "cores", "device_utilization": "1"}
    missing = {name: Measure(name, None, unit, reason=window.reason) for name, unit in units.items()}
    return missing | {"peak_memory": _peak_memory(run)}


def _cpu(window: Window) -> Iterator[Measure]:
    """Yield the CPU use of the stepping process at step boundaries; processes that it started are not in it."""
    process, device = (times(window.steps[name]) for name in ("process_cpu", "device_cpu"))
    for name, used, is_known, code in (
        ("host_cpu", process - device, process.any(), "no-cpu-times"),
        ("device_cpu", device, device.any(), "no-device-threads"),
    ):
        if is_known:
            cores = float(used.sum()) / window.wall_ns
            yield Measure(name, cores, "cores", n=len(window), source="thread clocks")
        else:
            yield Measure(name, None, "cores", reason=Notice(code))
    if process.any():
        seconds = float(process.sum()) / NS_PER_S / len(window)
        yield Measure("cpu_time", seconds, "s", n=len(window), source="thread clocks")


def _garbage_collections(run: Run, window: Window) -> Iterator[Measure]:
    """Yield the time of long garbage collections in the stepping process: each stops all of its Python."""
    rows = process_rows(run.regions[has_name(run, run.regions, GARBAGE_COLLECTION)], window)
    inside = overlaps(rows["begin"], rows["end"], window.spans)
    if len(inside.left):
        seconds = float((inside.end - inside.begin).sum()) / NS_PER_S / len(window)
        yield Measure("gc_time", seconds, "s", n=len(np.unique(inside.left)), source="regions")


def recording_seconds(run: Run, window: Window) -> float:
    """Return what the hooks of a run took of a measured step, by the number of their records."""
    if not len(window):
        return 0.0
    seconds = 0.0
    for table, moment, cost in (
        (run.regions, "end", RECORD_S),
        (run.calls, "end", RECORD_S),
        (run.boundaries, "time", RECORD_S),
        (run.stages, "end", RECORD_S),
        (run.thread_clocks, "time", CLOCKS_S),
    ):
        rows = thread_rows(table, window)
        seconds += cost * int((window.step_rows(rows[moment]) >= 0).sum())
    return seconds / len(window)


def _children_cpu(run: Run, window: Window) -> Measure:
    """Return the CPU use of the program's processes that make no steps: loader workers, pools, other ranks."""
    rows = sample_rows(run, CPU_S)
    used, processes = 0.0, 0
    for samples in rows_by(rows[~np.isin(rows["pid"], window.steps["pid"])], "pid").values():
        at = times(samples["time"])
        inside = covered_within(window.spans, at[:-1], at[1:])
        passed = np.maximum(np.diff(at), 1)
        used += float((np.diff(samples["value"]) * inside / passed).sum())
        processes += int((inside > 0).any())
    cores = used / (window.wall_ns / NS_PER_S)
    if not processes:
        return Measure("children_cpu", None, "cores", reason=Notice("no-other-process"))
    if cores < LEAST_CPU:
        return Measure("children_cpu", None, "cores", reason=Notice("other-processes-idle", {"cores": LEAST_CPU}))
    return Measure("children_cpu", cores, "cores", n=processes, source="sampled CPU times")


def busy_per_step(run: Run, window: Window) -> tuple[Times | Floats | None, Floats, str, Notice | None]:
    """Device busy ns of each measured step, ns that others took from it, and the source; None with the reason.

    The device's own counter where there is one, since it exists at every level; else the union of activities, averaged
    over several devices.

    What others took from a device that is a thread is neither busy nor idle. A device that polls also loses its core
    while it has nothing to do, which delays nothing; and it works on while its host has no core. So what others took is
    at most the time without a core of the device, and at most that of the program.
    """
    counted, none = counter_sums(run, window, (BUSY, LACKED)), np.zeros(len(window))
    if BUSY in counted and device_kind(run) != "cpu":
        lacked = counted.get(LACKED, none).astype(np.float64)
        most = next((each.value for each in _without_core(run, window)), None)
        if most is not None and lacked.sum() > most * window.wall_ns:
            lacked *= most * window.wall_ns / lacked.sum()
        return counted[BUSY], lacked, "counters", None
    reason = no_queue_reason(run, window)
    if reason:
        return None, none, "", reason
    devices = [covered_within(busy, window.begin, window.end) for busy in busy_by_device(run, window).values()]
    return (devices[0] if len(devices) == 1 else np.mean(devices, axis=0)), none, "activities", None


def peak_share(facts: Mapping[str, Any], speed: Measure) -> dict[str, Measure]:
    """Compute how much of the card's peak the program's arithmetic takes, where the program states both."""
    stated = facts.get("roofline")
    stated = stated if isinstance(stated, dict) else {}
    flops, peak = stated.get("flops_per_token"), stated.get("peak_flops")
    if not (isinstance(flops, int | float) and isinstance(peak, int | float) and peak > 0 and speed.value):
        return {}
    return {"peak_share": Measure("peak_share", speed.value * flops / peak, "1", n=speed.n, source="stated operations")}


def _utilization(run: Run, window: Window) -> Measure:
    on_device = device_window(run, window)
    busy, lacked, source, reason = busy_per_step(run, on_device)
    if busy is None and device_kind(run) == "cuda":
        return _sampled_utilization(run, window)
    if busy is None:
        return Measure("device_utilization", None, "1", reason=reason)
    share = float(busy.sum() / max(on_device.wall_ns - lacked.sum(), busy.sum(), 1))
    return Measure("device_utilization", share, "1", n=len(on_device), source=source)


def _without_core(run: Run, window: Window) -> Iterator[Measure]:
    """Yield the share of the measured time in which the program waited for a core because others had it.

    Threads of one program also wait for each other. So it is at most the time in which other programs and machines used
    a core. Where the program itself uses most of the cores, all its threads share the others' load.
    """
    (waited, by_device), load = time_without_core(run, window), other_load(run, window)
    if waited is not None and load is not None:
        cores = run.info.host["cores"]
        others = max(0.0, load + cores * (mean_within(run, STEAL, window) or 0.0))
        used = cores * (mean_within(run, "machine.cpu_util", window) or 0.0) - load
        if used > cores / 2 and not by_device:
            others /= cores
        share = min(1.0, others, waited / window.wall_ns)
        yield Measure(WITHOUT_CORE, share, "1", n=len(window), source="thread clocks")


def _sampled_utilization(run: Run, window: Window) -> Measure:
    """Return the utilization by NVML of the busiest GPU with the name that the program gave to its device, else of all
    GPUs.

    A sample covers the time before it, and counts by how much of that lies in measured steps.
    """
    rows, candidates = sample_rows(run, GPU_BUSY), list[Measure]()
    label = run.info.facts.get("device_label")
    named = [device.get("index") for device in run.info.devices if label and device.get("name") == label]
    for number, gpu in rows_by(rows, "tid").items():  # of GPU samples the tid is the device's index
        ends = times(gpu["time"])
        weight = covered_within(window.spans, np.concatenate([window.begin[:1], ends[:-1]]), ends)
        if (number in named or not named) and (weight := np.maximum(weight, 0)).any():
            mean = float(np.average(gpu["value"], weights=weight))
            candidates.append(Measure("device_utilization", mean, "1", n=int((weight > 0).sum()), source=SAMPLED))
    missing = Measure("device_utilization", None, "1", reason=NO_BUSY_TIME)
    return max(candidates, key=lambda measure: measure.value or 0.0, default=missing)


def _peak_memory(run: Run) -> Measure:
    """Return the largest resident memory of the process tree in the run, warm-up included.

    The kernel's high-water mark misses nothing, but each process has its own, reached at different times: of several
    processes the sum at a sample counts too, whichever is larger.
    """
    moments, total = process_tree_sum(run, RSS)
    peaks = sample_rows(run, PEAK_RSS)["value"]
    if not len(moments) and not len(peaks):
        return Measure("peak_memory", None, "bytes", reason=Notice("no-memory-samples"))
    sampled, marked = (float(values.max()) if len(values) else 0.0 for values in (total, peaks))
    source = "peak resident memory" if marked >= sampled else "sampled resident memory"
    return Measure("peak_memory", max(sampled, marked), "bytes", n=max(len(moments), len(peaks)), source=source)


def _memory_growth(run: Run, window: Window) -> tuple[Measure, ...]:
    """Return how much the training process's own memory grows in a step, where it grows in each third of the measured
    time."""
    rows = sample_rows(run, ANONYMOUS)
    rows = rows[(rows["pid"] == window.pid) & (rows["time"] >= window.begin[0]) & (rows["time"] <= window.end[-1])]
    steps = np.searchsorted(window.end, rows["time"]).astype(np.float64)
    if len(rows) < _MIN_GROWTH_SAMPLES or steps[0] == steps[-1]:
        return ()
    if int(rows["time"][-1]) - int(rows["time"][0]) < _MIN_GROWTH_S * NS_PER_S:
        return ()
    parts = zip(np.array_split(steps, 3), np.array_split(rows["value"].astype(np.float64), 3), strict=True)
    slopes = [float(np.polyfit(step, value, 1)[0]) for step, value in parts if step[-1] > step[0]]
    slope = float(np.polyfit(steps, rows["value"].astype(np.float64), 1)[0])
    low, high = min(slopes, default=0.0), max(slopes, default=0.0)
    if len(slopes) < 3 or slope <= 0 or low < slope / _STEADY or high > slope * _STEADY:
        return ()
    return (Measure("memory_growth", slope, "bytes/step", low, high, n=len(rows), source="resident memory"),)


_MEASURED: Final = 0.9
"""Part of the time between two samples that measured steps must cover. A choice: some time may pass between steps."""


def _page_faults(run: Run, window: Window) -> Iterator[Measure]:
    """Pages that the stepping thread gets from the kernel in a step, and its time in the kernel, if they are many."""
    if window.tid != window.pid:  # sampled for main threads
        return
    amounts = {}
    for name in (FAULTS, SYSTEM_S):
        rows = sample_rows(run, name)
        rows = rows[(rows["tid"] == window.tid) & (rows["time"] >= window.begin[0]) & (rows["time"] <= window.end[-1])]
        if len(rows) < 2:
            return
        at, more = times(rows["time"]), np.diff(rows["value"].astype(np.float64))
        # between two samples there may be steps that are not measured, such as one that imports a library
        measured = covered_within(window.spans, at[:-1], at[1:]) >= _MEASURED * np.diff(at)
        steps = np.diff(np.searchsorted(window.end, at))[measured].sum()
        if not steps:
            return
        amounts[name] = float(more[measured].sum()) / int(steps), len(rows)
    (pages, n), (seconds, _) = amounts[FAULTS], amounts[SYSTEM_S]
    if pages >= _MANY_PAGES:
        yield Measure("page_faults", pages, "pages", n=n, source="page faults")
        yield Measure("kernel_time", seconds, "s", n=n, source="page faults")


def sample_rows(run: Run, name: str) -> Table:
    """Return the samples of `name`, by time."""
    rows = named_rows(run, run.samples, name)
    by_time: Table = rows[np.argsort(rows["time"], kind="stable")]
    return by_time


def process_tree_sum(run: Run, name: str) -> tuple[Times, Floats]:
    """Return the times of the samples of `name`, and at each the sum over all processes sampled then."""
    rows = sample_rows(run, name)
    moments, group = np.unique(times(rows["time"]), return_inverse=True)
    return moments, np.bincount(group, rows["value"], minlength=len(moments)).astype(np.float64)


def free_cores(run: Run, window: Window) -> float | None:
    """Cores that the program may use and that no program used, on average over the measured time; None: not measured.

    Cores that programs of a lower priority used are free: the kernel gives them to the program when it needs them. Of
    the cores that it may run on, the same share is taken to be idle as of all cores of the machine. Its control
    groups may allow it less.
    """
    cores, quota = run.info.host.get("cores"), run.info.host.get("cpu_quota")
    idle = [1.0 - used for used in _values_within(window, *_column(sample_rows(run, "machine.cpu_util")))]
    low = _values_within(window, *_column(sample_rows(run, "machine.low_priority")))
    program = _values_within(window, *process_tree_sum(run, "process.cpu"))
    if not isinstance(cores, int | float) or not idle or not program:
        return None
    allowed = min(cores, quota) if isinstance(quota, int | float) else cores
    free = min(1.0, sum(idle) / len(idle) + (sum(low) / len(low) if low else 0.0))
    return max(0.0, min(cores * free, allowed - sum(program) / len(program)))


def other_load(run: Run, window: Window) -> float | None:
    """Return the mean number of cores that other programs used in the measured time; None: not measured."""
    used, cores = mean_within(run, "machine.cpu_util", window), run.info.host.get("cores")
    program = _values_within(window, *process_tree_sum(run, "process.cpu"))
    if used is None or not program or not isinstance(cores, int | float):
        return None
    return used * cores - sum(program) / len(program)


def mean_within(run: Run, name: str, window: Window) -> float | None:
    """Return the mean of the samples of `name` within the measured time; None: there are none."""
    values = _values_within(window, *_column(sample_rows(run, name)))
    return sum(values) / len(values) if values else None


def _column(rows: Table) -> tuple[Times, Floats]:
    return times(rows["time"]), rows["value"].astype(np.float64)


def _values_within(window: Window, moments: Times, values: Floats) -> list[float]:
    """Return the values of samples within the measured time."""
    inside: list[float] = values[(moments >= window.begin[0]) & (moments <= window.end[-1])].tolist()
    return inside


def series(run: Run, window: Window) -> tuple[Series, ...]:
    """Return all series that this run has data for; none where nothing was measured."""
    if not len(window):
        return ()
    curves = []
    for name in GAUGES:
        values = gauge_per_step(run, window, name)
        known = np.isfinite(values)
        if known.any():
            curves.append(Series(name, "1", *downsampled(window, window.end[known], values[known], window.wall[known])))
    every = [*_step_series(run, window), *curves, *_sample_series(run, window)]
    return tuple(curve for curve in every if curve.times)


def _step_series(run: Run, window: Window) -> list[Series]:
    """Amounts per step over the step's wall time."""
    traced = device_window(run, window) is not window  # then only those steps have activities
    busy, lacked, *_ = (None, np.zeros(len(window))) if traced else busy_per_step(run, window)
    if busy is not None:  # of the time that others left to the device
        busy = busy * window.wall / np.maximum(window.wall - lacked, np.maximum(busy, 1))
    process, device, tokens = (times(window.steps[name]) for name in ("process_cpu", "device_cpu", "tokens"))
    amounts: list[tuple[str, str, Floats | Times | None, float]] = [
        ("device_utilization", "1", busy, 1.0),
        ("host_cpu", "cores", process - device if process.any() else None, 1.0),
        ("device_cpu", "cores", device if device.any() else None, 1.0),
        ("tokens_per_s", f"{counted_unit(run.info)}/s", tokens if tokens.any() else None, NS_PER_S),
    ]
    middle = (window.begin + window.end) // 2
    return [
        Series(name, unit, *downsampled(window, middle, amount * scale / window.wall, window.wall))
        for name, unit, amount, scale in amounts
        if amount is not None
    ]


def _sample_series(run: Run, window: Window) -> list[Series]:
    rows = sample_rows(run, "machine.cpu_util")
    curves = [_sampled("machine_cpu", "1", window, times(rows["time"]), rows["value"])]
    curves.append(_sampled("process_memory", "bytes", window, *process_tree_sum(run, RSS)))
    rows = sample_rows(run, "gpu.util")
    for number, gpu in rows_by(rows, "tid").items():  # of GPU samples the tid is the device's index
        curves.append(_sampled(f"gpu_{number}_utilization", "1", window, times(gpu["time"]), gpu["value"]))
    return curves


def _sampled(name: str, unit: str, window: Window, at: Times, values: Floats) -> Series:
    """Make a series of samples, each of which stands for the time until the next one."""
    inside = (at >= window.begin[0]) & (at <= window.end[-1])
    at, values = at[inside], values[inside]
    weight = np.diff(at, append=window.end[-1]) if len(at) else at
    return Series(name, unit, *downsampled(window, at, values, np.maximum(weight, 1)))


def downsampled(
    window: Window, at: Times, values: Floats, weight: Times
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return times in s and values: as they are, or their weighted means in MAX_POINTS equal stretches of the window.

    :param at: ns, ascending.
    :param weight: how long each value stands for, ns.
    """
    start, length = int(window.begin[0]), max(1, int(window.end[-1] - window.begin[0]))
    seconds = (at - start) / NS_PER_S
    if len(at) > MAX_POINTS:
        stretch = np.clip((at - start) * MAX_POINTS // length, 0, MAX_POINTS - 1)
        total = np.bincount(stretch, weight, minlength=MAX_POINTS)
        filled = total > 0
        values = np.bincount(stretch, values * weight, minlength=MAX_POINTS)[filled] / total[filled]
        seconds = ((np.arange(MAX_POINTS) + 0.5) * length / MAX_POINTS / NS_PER_S)[filled]
    return tuple(seconds.tolist()), tuple(np.asarray(values, np.float64).tolist())
