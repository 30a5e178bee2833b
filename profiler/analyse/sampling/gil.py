"""Estimates how likely a thread on a CPU held the GIL, from windows in which only its holder is sampled.

A sample does not tell whether its thread held the GIL. So other windows sample its holder alone, and rates are
compared: for a kind of stack, the share of time as holder over the share of time on a CPU. What is on a CPU without the
GIL is native work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Intervals, overlaps, times, union
from profiler.analyse.sampling.batch_means import Floats, ratio_interval
from profiler.analyse.statistics import share_interval
from profiler.analyse.window import NS_PER_S, Window, select, thread_rows
from profiler.run.model import Run, Table

WINDOWS: Final = "stacks.gil_window_s"
PERIOD: Final = "stacks.period_s"
USUAL_PERIOD_S: Final = 0.01
"""Assumed for a sampler that did not record its period: a run requests 100 samples per second."""


@dataclass(frozen=True, slots=True)
class Probability:
    """A probability with its 95% interval."""

    value: float
    low: float
    high: float


def sampling_period(run: Run) -> float | None:
    """Seconds that one sample of a thread stands for, as the sampler recorded it; None where it did not."""
    values = _samples(run, PERIOD)["value"]
    values = values[values > 0]
    return float(np.median(values)) if len(values) else None


def gil_windows(run: Run, window: Window) -> Intervals:
    """The measured time in which the GIL's holder was sampled. Each value is the length of a window that ends then."""
    rows = _samples(run, WINDOWS)
    rows = rows[(rows["pid"] == window.pid) | (rows["pid"] == 0)]
    end = times(rows["time"])
    length = times(np.rint(rows["value"] * NS_PER_S))
    inside = overlaps(end - length, end, window.spans)
    return union(inside.begin, inside.end)


def holder_samples(run: Run, window: Window, windows: Intervals) -> tuple[Table, npt.NDArray[np.float64]]:
    """Samples of the stepping thread as the GIL's holder, and the ns of measured time that each stands for."""
    samples = thread_rows(run.gil_stacks, window)
    cut = overlaps(times(samples["begin"]), times(samples["end"]), windows)
    return samples, np.bincount(cut.left, cut.end - cut.begin, minlength=len(samples)).astype(np.float64)


def batched_gil_probability(
    holding: Floats, watched: Floats, on_cpu: Floats, sampled: Floats, counts: tuple[float, float]
) -> Probability:
    """P(holds the GIL | on a CPU), from each batch's share of time as the holder and its share of time on a CPU.

    The two come from different times, so a program of long phases is compared between neighbouring batches only.

    :param holding: ns as the holder in each batch, out of `watched` ns of windows of the GIL.
    :param on_cpu: ns on a CPU in each, out of `sampled` ns of other windows.
    :param counts: how many samples the two kinds of windows hold.
    """
    plain = gil_probability(
        float(holding.sum() / watched.sum()), counts[0], float(on_cpu.sum() / max(1.0, sampled.sum())), counts[1]
    )
    both = (watched > 0) & (sampled > 0)
    expected = on_cpu[both] / sampled[both] * watched[both]
    ends = ratio_interval(holding[both], expected)
    if ends is None or not holding.any() or not on_cpu.any():
        return plain
    ratio = float(holding[both].sum() / expected.sum())
    low, high = min(ends[0], ratio - plain.value + plain.low), max(ends[1], ratio - plain.value + plain.high)
    return Probability(*(min(1.0, max(0.0, value)) for value in (ratio, low, high)))


def gil_probability(holding: float, holding_n: float, on_cpu: float, on_cpu_n: float) -> Probability:
    """P(holds the GIL | on a CPU) from two shares of time, each out of its own number of samples."""
    low, high = share_interval(holding, holding_n)
    lowest, highest = share_interval(on_cpu, on_cpu_n)
    if not holding or not on_cpu:
        return Probability(0.0 if on_cpu else 1.0, 0.0, min(1.0, high / lowest) if lowest else 1.0)
    ratio = holding / on_cpu  # relative errors of a ratio add as squares
    below = math.hypot(1 - low / holding, 1 - on_cpu / highest)
    above = math.hypot(high / holding - 1, on_cpu / lowest - 1)
    return Probability(min(1.0, ratio), min(1.0, max(0.0, ratio * (1 - below))), min(1.0, ratio * (1 + above)))


def _samples(run: Run, name: str) -> Table:
    number = run.names.index(name) if name in run.names else -1
    return select(run.samples, run.samples["name"] == number)
