"""Stack samples of the stepping thread inside the measured steps, and the shares of time that they stand for.

A sample stands for the time until the thread's next sample; what of it lies outside measured steps does not count. The
sampler's clock is accurate to milliseconds: samples tell how much of the run went where, not what happened at a moment.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import overlaps, times
from profiler.analyse.timing.breakdown import PythonActivity
from profiler.analyse.window import Window, thread_rows
from profiler.run.model import Run, Table

MIN_STATE_SHARE: Final = 0.9
"""Share of the sampled time with a recorded CPU state from which samples alone tell how active a thread was."""


def weighted_samples(run: Run, window: Window) -> tuple[Table, npt.NDArray[np.int64]]:
    """The stepping thread's samples, and how many ns of measured steps each stands for."""
    samples = thread_rows(run.stacks, window)
    cut = overlaps(times(samples["begin"]), times(samples["end"]), window.spans)
    weight = np.bincount(cut.left, cut.end - cut.begin, minlength=len(samples))
    inside = weight > 0
    return samples[inside], weight[inside].astype(np.int64)


def python_activity(run: Run, window: Window) -> PythonActivity | None:
    """The share of active Python, or None where nothing can tell.

    If most samples know whether the thread was on a CPU, they give the share directly. Otherwise (a sampler outside the
    process cannot tell in a fast loop), the thread's CPU clock, read at every step, tells how long it was active, and
    the samples only prove that it was in Python.
    """
    samples, weight = weighted_samples(run, window)
    if not len(samples):
        return None
    framed = np.array([len(frames) > 0 for frames in run.stack_frames])[samples["stack"]]
    has_state = samples["active"] >= 0
    if weight[has_state].sum() >= MIN_STATE_SHARE * weight.sum():
        samples, weight, framed = samples[has_state], weight[has_state], framed[has_state]
        share = float(weight[framed & (samples["active"] == 1)].sum() / weight.sum())
        return PythonActivity(share, len(samples), 1.96 * math.sqrt(share * (1 - share) / len(samples)))
    cpu = int(window.steps["thread_cpu"].sum())
    if not cpu:
        return None
    in_python = float(weight[framed].sum() / weight.sum())
    return PythonActivity(in_python * min(1.0, cpu / window.wall_ns), len(samples), 0.0)
