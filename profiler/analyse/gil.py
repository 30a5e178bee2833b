"""How likely a thread on a CPU held the GIL: from windows of samples in which only its holder is seen.

A sample does not say whether its thread held the GIL. So other windows see its holder alone, and rates are compared: of
a kind of stack, the share of time as holder over the share of time on a CPU. What is on a CPU without it is native.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.blocks import Floats, ratio_ends
from profiler.analyse.timeline import Intervals, overlaps, times, union
from profiler.analyse.window import NS_PER_S, Window, of_thread, select
from profiler.run.model import Run, Table

WINDOWS: Final = "stacks.gil_window_s"
PERIOD: Final = "stacks.period_s"
USUAL_PERIOD_S: Final = 0.01
"""Of a sampler whose own count is not known: 100 samples a second are what a run asks for."""
Z: Final = 1.96


@dataclass(frozen=True, slots=True)
class Chance:
    """A probability with its 95% interval."""

    value: float
    low: float
    high: float


def wilson(share: float, n: float) -> tuple[float, float]:
    """95% interval of a share that was seen in `n` samples (Wilson's score), which is honest at 0 and 1 too."""
    if n <= 0:
        return 0.0, 1.0
    share = min(1.0, max(0.0, share))
    middle = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def period_s(run: Run) -> float | None:
    """Seconds that one sample of a thread stands for, as the sampler counted them; None where it did not."""
    values = _values(run, PERIOD)["value"]
    values = values[values > 0]
    return float(np.median(values)) if len(values) else None


def gil_windows(run: Run, window: Window) -> Intervals:
    """The measured time in which the GIL's holder was sampled. Each value is the length of a window that ends then."""
    rows = _values(run, WINDOWS)
    rows = rows[(rows["pid"] == window.pid) | (rows["pid"] == 0)]
    end = times(rows["time"])
    length = times(np.rint(rows["value"] * NS_PER_S))
    inside = overlaps(end - length, end, window.spans)
    return union(inside.begin, inside.end)


def holder_samples(run: Run, window: Window, seen: Intervals) -> tuple[Table, npt.NDArray[np.float64]]:
    """Samples of the stepping thread as the GIL's holder, and the ns of measured time that each stands for."""
    samples = of_thread(run.gil_stacks, window)
    cut = overlaps(times(samples["begin"]), times(samples["end"]), seen)
    return samples, np.bincount(cut.left, cut.end - cut.begin, minlength=len(samples)).astype(np.float64)


def paired(holding: Floats, looked: Floats, on_cpu: Floats, sampled: Floats, counts: tuple[float, float]) -> Chance:
    """P(holds the GIL | on a CPU), each block's share as holder held against its own share on a CPU.

    The two come from different moments, so a program of long phases is compared between neighbouring ones only.

    :param holding: ns as the holder in each block, out of `looked` ns of windows of the GIL.
    :param on_cpu: ns on a CPU in each, out of `sampled` ns of other windows.
    :param counts: how many samples the two kinds of windows hold.
    """
    plain = chance(
        float(holding.sum() / looked.sum()), counts[0], float(on_cpu.sum() / max(1.0, sampled.sum())), counts[1]
    )
    both = (looked > 0) & (sampled > 0)
    expected = on_cpu[both] / sampled[both] * looked[both]
    ends = ratio_ends(holding[both], expected)
    if ends is None or not holding.any() or not on_cpu.any():
        return plain
    ratio = float(holding[both].sum() / expected.sum())
    low, high = min(ends[0], ratio - plain.value + plain.low), max(ends[1], ratio - plain.value + plain.high)
    return Chance(*(min(1.0, max(0.0, one)) for one in (ratio, low, high)))


def chance(held: float, held_n: float, on_cpu: float, on_cpu_n: float) -> Chance:
    """P(holds the GIL | on a CPU) from two shares of time, each out of its own number of samples."""
    low, high = wilson(held, held_n)
    least, most = wilson(on_cpu, on_cpu_n)
    if not held or not on_cpu:
        return Chance(0.0 if on_cpu else 1.0, 0.0, min(1.0, high / least) if least else 1.0)
    ratio = held / on_cpu  # relative errors of a ratio add as squares
    below = math.hypot(1 - low / held, 1 - on_cpu / most)
    above = math.hypot(high / held - 1, on_cpu / least - 1)
    return Chance(min(1.0, ratio), min(1.0, max(0.0, ratio * (1 - below))), min(1.0, ratio * (1 + above)))


def _values(run: Run, name: str) -> Table:
    number = run.names.index(name) if name in run.names else -1
    return select(run.samples, run.samples["name"] == number)
