"""Sets steps apart that did work which occurs once, such as the import of a library, a first figure, a compilation.

Such a step is no usual step: what it costs does not recur in a longer run. So it is not measured, as warm-up is not.
Its extra work is told in seconds, without a rate and without a gain. The clocks of the steps alone tell which steps
these are. Stack samples then tell what the extra work is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import covered_within
from profiler.analyse.model.host import Spikes, Stage
from profiler.analyse.model.measures import USUAL_STEPS
from profiler.analyse.sampling.shares import ClassifiedSamples
from profiler.analyse.sampling.spikes import LOADER_START, LONG, MIN_EXTRA, MIN_TYPICAL, recorded_spans, spikes_at
from profiler.analyse.sampling.stacks import Stacks
from profiler.analyse.sampling.stages import stage_spans
from profiler.analyse.timing.scheduler import step_delays
from profiler.analyse.window import Window, rank_windows
from profiler.run.model import Run
from profiler.run.tables import GARBAGE_COLLECTION, ONE_OFF

LEAST_NS: Final = 100_000_000
"""Extra time below which nobody would look for its cause: the kernel alone delays a step by as much at times."""
MOST_ONE_OFFS: Final = 2
"""Work that occurs in more steps recurs."""
EXPLAINED: Final = 0.5
"""Share of the extra time of a step from which recorded work with a known period explains it."""
_PERIODIC: Final = (Stage.EVALUATION, Stage.ROLLOUT, Stage.CHECKPOINT, LOADER_START)
"""Recorded work that recurs in a longer run although a short one shows it once. So does collecting garbage, where more
than MOST_ONE_OFFS steps have a long collection. An import may have many of them in one step."""

Mask = npt.NDArray[np.bool_]


def set_apart(run: Run) -> Run:
    """The run with `warmup` ONE_OFF in its steps with work that occurs once; where one rank has it, in those of all.

    A run of level light, a foreign trace, and a run without steps are returned as they are.
    """
    if run.is_trace or run.info.level == "light" or (run.step is not None and run.step.is_whole_run):
        return run
    windows = rank_windows(run)
    found = {number for window in windows for number in _one_offs(run, window)}
    if not found or len(found) > MOST_ONE_OFFS or len(windows[0]) - len(found) < USUAL_STEPS - 1:
        return run
    steps = run.steps.copy()
    rows = np.isin(steps["index"], sorted(found)) & (steps["warmup"] == 0)
    threads = [(window.pid, window.tid) for window in windows]
    rows &= np.array([thread in threads for thread in zip(steps["pid"].tolist(), steps["tid"].tolist(), strict=True)])
    steps["warmup"][rows] = ONE_OFF
    steps.setflags(write=False)
    return replace(run, steps=steps)


def _one_offs(run: Run, window: Window) -> list[int]:
    """The numbers of the steps of a rank that did work which occurs once."""
    if len(window) < USUAL_STEPS:
        return []
    delays = step_delays(run, window)
    # without the time that other programs took: they delay a step, too
    own = (window.wall if delays is None else window.wall - delays).astype(np.float64)
    usual = float(np.median(own))
    extra = own - usual
    # smaller extra work beside that of one step is judged by itself
    alike = extra >= MIN_TYPICAL * extra.max()
    long = alike & (own > LONG * usual) & (extra >= max(LEAST_NS, MIN_EXTRA * own.sum()))
    if not long.any() or alike.sum() > MOST_ONE_OFFS:
        return []
    stacks = Stacks(run)
    recorded = recorded_spans(stacks, window, stage_spans(stacks, window))
    collections = recorded[GARBAGE_COLLECTION]
    begins = collections.begin[collections.end - collections.begin >= LEAST_NS]
    begins = begins[begins >= window.begin[0]]
    step = np.searchsorted(window.begin, begins, side="right") - 1
    is_inside = begins < window.end[step]
    often = len(np.unique(step[is_inside])) + (~is_inside).sum() > MOST_ONE_OFFS
    for name in (*_PERIODIC, GARBAGE_COLLECTION) if often else _PERIODIC:
        spans = recorded.get(name)
        if spans is not None:
            long &= covered_within(spans, window.begin, window.end) < EXPLAINED * extra
    return [int(number) for number in window.steps["index"][long]]


def one_offs(stacks: Stacks, window: Window, classified: ClassifiedSamples | None) -> Spikes | None:
    """What the steps that were set apart took more than the measured ones, and where; None: there are none.

    :param window: the measured steps.
    """
    steps = stacks.run.steps
    rows = steps[(steps["pid"] == window.pid) & (steps["tid"] == window.tid) & np.isin(steps["warmup"], (0, ONE_OFF))]
    apart = rows["warmup"] == ONE_OFF
    if not len(window) or not apart.any():
        return None
    rows = rows[np.argsort(rows["begin"], kind="stable")]
    both = replace(window, steps=rows, begin=rows["begin"].astype(np.int64), end=rows["end"].astype(np.int64))
    apart = rows["warmup"] == ONE_OFF
    if both.wall[apart].sum() <= apart.sum() * np.median(both.wall[~apart]):
        return None  # only another rank worked longer
    return spikes_at(
        stacks,
        both,
        stage_spans(stacks, both),
        (apart, ~apart),
        is_certain=False,
        are_one_offs=True,
        classified=classified,
    )
