"""Use of the device, the host and the machine over time, as series of at most MAX_POINTS points for plots."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.counters import gauge_per_step
from profiler.analyse.model import Series
from profiler.analyse.resources import RSS, busy_per_step, process_tree_sum, sample_rows
from profiler.analyse.throughput import unit_of
from profiler.analyse.timeline import Times, times
from profiler.analyse.window import NS_PER_S, Window, device_window
from profiler.run.model import Run

MAX_POINTS: Final = 240
"""What a plot of a report's width can show."""
GAUGES: Final = ("loss", "accuracy", "heldout_loss", "heldout_accuracy")
"""What a model learns, on the text that it trains on and on text that it does not."""
Floats = npt.NDArray[np.float64]


def series(run: Run, window: Window) -> tuple[Series, ...]:
    """All series that this run has data for; none where nothing was measured."""
    if not len(window):
        return ()
    found = [*_of_steps(run, window), *_of_gauges(run, window), *_of_samples(run, window)]
    return tuple(one for one in found if one.times)


def _of_steps(run: Run, window: Window) -> list[Series]:
    """Amounts per step over the step's wall time."""
    traced = device_window(run, window) is not window  # then the other steps say nothing of the device
    busy = None if traced else busy_per_step(run, window)[0]
    process, device, tokens = (times(window.steps[name]) for name in ("process_cpu", "device_cpu", "tokens"))
    amounts: list[tuple[str, str, Floats | Times | None, float]] = [
        ("device_utilization", "1", busy, 1.0),
        ("host_cpu", "cores", process - device if process.any() else None, 1.0),
        ("device_cpu", "cores", device if device.any() else None, 1.0),
        ("tokens_per_s", f"{unit_of(run.info)}/s", tokens if tokens.any() else None, NS_PER_S),
    ]
    middle = (window.begin + window.end) // 2
    return [
        Series(name, unit, *downsampled(window, middle, amount * scale / window.wall, window.wall))
        for name, unit, amount, scale in amounts
        if amount is not None
    ]


def _of_gauges(run: Run, window: Window) -> list[Series]:
    found = []
    for name in GAUGES:
        values = gauge_per_step(run, window, name)
        known = np.isfinite(values)
        if known.any():
            mean = downsampled(window, window.end[known], values[known], window.wall[known])
            found.append(Series(name, "1", *mean))
    return found


def _of_samples(run: Run, window: Window) -> list[Series]:
    rows = sample_rows(run, "machine.cpu_util")
    found = [_sampled("machine_cpu", "1", window, times(rows["time"]), rows["value"])]
    found.append(_sampled("process_memory", "bytes", window, *process_tree_sum(run, RSS)))
    rows = sample_rows(run, "gpu.util")
    for number in np.unique(rows["tid"]).tolist():  # of GPU samples the tid is the device's index
        own = rows[rows["tid"] == number]
        found.append(_sampled(f"gpu_{number}_utilization", "1", window, times(own["time"]), own["value"]))
    return found


def _sampled(name: str, unit: str, window: Window, at: Times, values: Floats) -> Series:
    """A sample stands for the time until the next one."""
    inside = (at >= window.begin[0]) & (at <= window.end[-1])
    at, values = at[inside], values[inside]
    weight = np.diff(at, append=window.end[-1]) if len(at) else at
    return Series(name, unit, *downsampled(window, at, values, np.maximum(weight, 1)))


def downsampled(
    window: Window, at: Times, values: Floats, weight: Times
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Times in s and values: as they are, or their weighted means in MAX_POINTS equal stretches of the window.

    :param at: ns, ascending.
    :param weight: how long each value stands for, ns.
    """
    start, length = int(window.begin[0]), max(1, int(window.end[-1] - window.begin[0]))
    seconds = (at - start) / NS_PER_S
    if len(at) > MAX_POINTS:
        stretch = np.clip((at - start) * MAX_POINTS // length, 0, MAX_POINTS - 1)
        total = np.bincount(stretch, weight, minlength=MAX_POINTS)
        kept = total > 0
        values = np.bincount(stretch, values * weight, minlength=MAX_POINTS)[kept] / total[kept]
        seconds = ((np.arange(MAX_POINTS) + 0.5) * length / MAX_POINTS / NS_PER_S)[kept]
    return tuple(seconds.tolist()), tuple(np.asarray(values, np.float64).tolist())
