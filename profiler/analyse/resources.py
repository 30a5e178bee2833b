"""What the run used: CPU of the host and of the device's threads in cores, device utilisation, peak memory."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.counters import counter_sums
from profiler.analyse.device import busy_by_device, no_queue_reason
from profiler.analyse.model import Measure
from profiler.analyse.timeline import Times, covered_within, times
from profiler.analyse.window import NO_QUEUE, NS_PER_S, Window, device_kind, device_window, select
from profiler.core.notice import Notice
from profiler.run.model import Run, Table

RSS: Final = "process.rss"
PEAK_RSS: Final = "process.peak_rss"
CPU_S: Final = "process.cpu_s"
BUSY: Final = "device_busy_ns"
GPU_BUSY: Final = "gpu.util"
SAMPLED: Final = "nvml"
"""Short gaps between kernels are not seen: at most this much of the time was the device busy."""
LEAST_CPU: Final = 0.005
"""Cores: what processes that only wait use, those that Python itself starts among them."""
NO_BUSY_TIME: Final = Notice("no-busy-time")


def resources(run: Run, window: Window) -> dict[str, Measure]:
    """host_cpu, device_cpu, children_cpu, device_utilization and peak_memory."""
    found = (*_cpu(window), _children_cpu(run, window), _utilization(run, window), _peak_memory(run))
    return {measure.name: measure for measure in found}


def _cpu(window: Window) -> tuple[Measure, ...]:
    """CPU of the stepping process at step boundaries; processes that it started are not in it."""
    if not len(window):
        return tuple(Measure(name, None, "cores", reason=window.reason) for name in ("host_cpu", "device_cpu"))
    process, device = (times(window.steps[name]) for name in ("process_cpu", "device_cpu"))
    source, count, wall = "thread clocks", len(window), window.wall_ns
    if not process.any():
        host = Measure("host_cpu", None, "cores", reason=Notice("no-cpu-times"))
    else:
        host = Measure("host_cpu", float((process - device).sum()) / wall, "cores", n=count, source=source)
    if not device.any():
        reason = Notice("no-device-threads")
        return host, Measure("device_cpu", None, "cores", reason=reason)
    return host, Measure("device_cpu", float(device.sum()) / wall, "cores", n=count, source=source)


def _children_cpu(run: Run, window: Window) -> Measure:
    """CPU of the program's processes that make no steps: loader workers, pools, other ranks."""
    if not len(window):
        return Measure("children_cpu", None, "cores", reason=window.reason)
    rows = sample_rows(run, CPU_S)
    used, seen = 0.0, 0
    for pid in np.setdiff1d(rows["pid"], window.steps["pid"]).tolist():
        own = rows[rows["pid"] == pid]
        at = times(own["time"])
        inside = covered_within(window.spans, at[:-1], at[1:])
        passed = np.maximum(np.diff(at), 1)
        used += float((np.diff(own["value"]) * inside / passed).sum())
        seen += int((inside > 0).any())
    cores = used / (window.wall_ns / NS_PER_S)
    if not seen:
        return Measure("children_cpu", None, "cores", reason=Notice("no-other-process"))
    if cores < LEAST_CPU:
        return Measure("children_cpu", None, "cores", reason=Notice("other-processes-idle", {"cores": LEAST_CPU}))
    return Measure("children_cpu", cores, "cores", n=seen, source="sampled CPU times")


def busy_per_step(run: Run, window: Window) -> tuple[Times | npt.NDArray[np.float64] | None, str, Notice | None]:
    """Device busy ns of each measured step with its source; None with the reason.

    The device's own counter where there is one, since it is there at every level; else the union of activities,
    of several devices their mean.
    """
    if not len(window):
        return None, "", window.reason
    if device_kind(run) == "cpu":
        return None, "", NO_QUEUE
    counted = counter_sums(run, window, (BUSY,))
    if counted:
        return counted[BUSY], "counters", None
    reason = no_queue_reason(run, window)
    if reason:
        return None, "", reason
    devices = [covered_within(busy, window.begin, window.end) for busy in busy_by_device(run, window)]
    return (devices[0] if len(devices) == 1 else np.mean(devices, axis=0)), "activities", None


def _utilization(run: Run, window: Window) -> Measure:
    on_device = device_window(run, window)
    busy, source, reason = busy_per_step(run, on_device)
    if busy is None and len(window) and device_kind(run) == "cuda":
        return _sampled_utilization(run, window)
    if busy is None:
        return Measure("device_utilization", None, "1", reason=reason)
    return Measure("device_utilization", float(busy.sum()) / on_device.wall_ns, "1", n=len(on_device), source=source)


def _sampled_utilization(run: Run, window: Window) -> Measure:
    """By NVML, of the busiest GPU of those that bear the name which the program gave to its device, else of all.

    A sample tells of the time before it, and counts by how much of that lies in measured steps.
    """
    rows, found = sample_rows(run, GPU_BUSY), list[Measure]()
    label = run.info.facts.get("device_label")
    own = [device.get("index") for device in run.info.devices if label and device.get("name") == label]
    for number in np.unique(rows["tid"]).tolist():  # of GPU samples the tid is the device's index
        gpu = rows[rows["tid"] == number]
        ends = times(gpu["time"])
        weight = covered_within(window.spans, np.concatenate([window.begin[:1], ends[:-1]]), ends)
        if (number in own or not own) and (weight := np.maximum(weight, 0)).any():
            mean = float(np.average(gpu["value"], weights=weight))
            found.append(Measure("device_utilization", mean, "1", n=int((weight > 0).sum()), source=SAMPLED))
    nothing = Measure("device_utilization", None, "1", reason=NO_BUSY_TIME)
    return max(found, key=lambda measure: measure.value or 0.0, default=nothing)


def _peak_memory(run: Run) -> Measure:
    """Most resident memory of the process tree in the whole run, warm-up included.

    The kernel's own high-water mark misses no moment, but there is one a process and they need not have been reached
    at once: of several processes the sum at a sample counts too, whichever is more.
    """
    moments, total = process_tree_sum(run, RSS)
    peaks = sample_rows(run, PEAK_RSS)["value"]
    if not len(moments) and not len(peaks):
        return Measure("peak_memory", None, "bytes", reason=Notice("no-memory-samples"))
    sampled, marked = (float(values.max()) if len(values) else 0.0 for values in (total, peaks))
    source = "peak resident memory" if marked >= sampled else "sampled resident memory"
    return Measure("peak_memory", max(sampled, marked), "bytes", n=max(len(moments), len(peaks)), source=source)


def sample_rows(run: Run, name: str) -> Table:
    """The samples of `name`, by time."""
    if name not in run.names:
        return run.samples[:0]
    rows = select(run.samples, run.samples["name"] == run.names.index(name))
    by_time: Table = rows[np.argsort(rows["time"], kind="stable")]
    return by_time


def process_tree_sum(run: Run, name: str) -> tuple[Times, npt.NDArray[np.float64]]:
    """Times of the samples of `name`, and at each the sum over all processes sampled then."""
    rows = sample_rows(run, name)
    moments, group = np.unique(times(rows["time"]), return_inverse=True)
    return moments, np.bincount(group, rows["value"], minlength=len(moments)).astype(np.float64)
