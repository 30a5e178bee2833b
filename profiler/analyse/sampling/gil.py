"""Estimates how likely a thread on a CPU held the GIL, from windows in which its holder is sampled.

A sample does not tell whether its thread held the GIL. So another sampler samples its holder alone, and rates are
compared: for a kind of stack, the share of time as holder over the share of time on a CPU. What is on a CPU without the
GIL is native work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from profiler.analyse.intervals import Floats, Intervals, Times
from profiler.analyse.sampling.batch_means import Batches, covered_in_batches, ratio_interval, sum_in_batches
from profiler.analyse.sampling.stacks import COINCIDENT, USUAL_PERIOD_S, WINDOWS, Stacks, sample_ns
from profiler.analyse.sampling.strata import StackStrata
from profiler.analyse.statistics import share_interval
from profiler.analyse.window import NS_PER_S, Window, named_rows, thread_rows

LOOKS: Final = "stacks.gil_ticks"


@dataclass(frozen=True, slots=True)
class Probability:
    """A probability with its 95% interval."""

    value: float
    low: float
    high: float


def gil_looks(stacks: Stacks, window: Window, windows: Intervals) -> float:
    """How often the GIL's holder was looked for within `windows`."""
    rows = [named_rows(stacks.run, stacks.run.samples, name) for name in (WINDOWS, LOOKS)]
    seconds, looks = (float(part["value"][np.isin(part["pid"], (window.pid, 0))].sum()) for part in rows)
    measured = windows.measure() / NS_PER_S
    return measured * looks / seconds if looks and seconds else measured / (stacks.period or USUAL_PERIOD_S)


class GilHolders:
    """Samples of the stepping thread as the GIL's holder, to be compared with its other samples."""

    def __init__(self, strata: StackStrata, window: Window, windows: Intervals, edges: Times) -> None:
        holders = thread_rows(strata.stacks.run.gil_stacks, window)
        self._holders, self._edges = holders, edges
        self._ns = sample_ns(holders, windows)
        self._stratum = strata.strata(holders["stack"], strata.regions_at(holders["begin"]))
        self._leaf = strata.leaf[holders["stack"]]
        self._watched = covered_in_batches(edges, windows)
        self.coincide = windows.measure() > COINCIDENT * window.wall_ns
        """Whether holders and other samples are of the same time."""
        self._n = gil_looks(strata.stacks, window, windows)

    def probability(self, stratum: int, leaf: int, on_cpu: Floats, batches: Batches, n: float) -> Probability:
        """P(holds the GIL | on a CPU) for samples of one stratum and kind of innermost frame.

        :param on_cpu: ns on a CPU in each batch, out of those of all `n` samples in `batches`.
        """
        same = (self._stratum == stratum) & (self._leaf == leaf)
        if self.coincide:
            holds = float(self._ns[same].sum() / self._watched.sum())
            return coincident_gil_probability(holds, self._n, float(on_cpu.sum() / batches.ns.sum()))
        holding = sum_in_batches(self._edges, self._holders["begin"][same], self._ns[same])
        return batched_gil_probability(holding, self._watched, on_cpu, batches.ns.sum(axis=0), (self._n, n))


def coincident_gil_probability(holding: float, holding_n: float, on_cpu: float) -> Probability:
    """P(holds the GIL | on a CPU) where both kinds of samples are of the same time: only the holders' error counts.

    A share of time as the holder, which is what the probability is used for, is the product of the two, from which the
    share of time on a CPU cancels.
    """
    low, high = share_interval(holding, holding_n)
    if not on_cpu:
        return Probability(1.0, 0.0, 1.0)
    return Probability(*(min(1.0, share / on_cpu) for share in (holding, low, high)))


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
