"""Strata of samples: the kind of recorded time that each sample belongs to, and the weights that give it its exact
total."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Intervals, overlaps
from profiler.analyse.sampling.frames import BACKWARD, CALL, CHECKPOINT, COPY, DATA, OPTIMIZER, TOKENIZE, Stack
from profiler.analyse.timing.categories import RECORDING, region_category
from profiler.analyse.timing.host_timeline import REGION, HostTimeline
from profiler.analyse.window import Window
from profiler.run.model import Run, StepKind

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

DIVIDED: Final = ("", BACKWARD, OPTIMIZER)
"""Strata whose time samples divide among categories. The empty name is time that no record covers, or that is only in
regions which say that Python ran."""
FIXED: Final[Mapping[str, str]] = {DATA: "input", TOKENIZE: "input", CHECKPOINT: "checkpoint"}
"""Strata whose time keeps its category."""
LOADING: Final = (DATA, "loader start", "worker start", "dataset", "dataset map", "collate", "receive", "pin memory")
"""Regions during which stack frames also show the data loader."""
WEIGHTED_TOGETHER: Final = ((DATA,), (TOKENIZE,), (CHECKPOINT,), (BACKWARD,), (OPTIMIZER,), ("", CALL))
"""Strata whose samples are weighted together: frames always distinguish these groups, and their total is exact."""
STRATA: Final = (*DIVIDED, *FIXED, CALL)
HOOKS_FACT: Final = "package"
"""Fact that only hooks state: where their own code is."""
NUMBER: Final = {name: number for number, name in enumerate(STRATA)}


def has_hooked_steps(run: Run) -> bool:
    """Whether hooks recorded this run: they found its steps, or recorded everything else if the program marks its steps
    itself.

    Without hooks, a program that marks its steps has marks for the other parts too.
    """
    if run.step is not None and run.step.kind is StepKind.MARKED:
        return HOOKS_FACT in run.info.facts
    return bool(len(run.boundaries)) or (run.step is not None and run.step.is_whole_run)


def stratum_times(run: Run, window: Window, host: HostTimeline) -> dict[str, Numbers]:
    """ns of each stratum in each measured step, from the records alone; what they leave belongs to ''."""
    segments = host.segments
    cut = overlaps(segments.begin, segments.end, Intervals(window.begin, window.end))
    stratum = np.full(len(segments.begin), NUMBER[CALL])
    by_name = np.array([region_stratum(name) for name in run.names] or [0], np.int64)
    regions = np.flatnonzero(host.source == REGION)
    stratum[regions] = by_name[host.regions["name"][host.record[regions]]]
    kinds, steps = len(STRATA), len(window)
    cell = cut.right * kinds + stratum[cut.left]
    sums = np.bincount(cell, cut.end - cut.begin, minlength=kinds * steps).astype(np.int64).reshape(steps, kinds)
    sums[:, 0] += window.wall - sums.sum(axis=1)
    return {name: sums[:, number] for name, number in NUMBER.items()}


def region_stratum(name: str) -> int:
    """Number of a region's stratum. A region that keeps its category and that no frame shows is treated as a call,
    whose time is exact."""
    if name in LOADING or name in NUMBER:
        return NUMBER[DATA if name in LOADING else name]
    return NUMBER[""] if region_category(name) == "python" and name != RECORDING else NUMBER[CALL]


def stack_stratum(stack: Stack, recorded: Mapping[str, Numbers], *, has_copies: bool) -> tuple[int, str]:
    """Number of the innermost stratum that was recorded in this run, and the category of library frames inside of it.

    :param recorded: the strata that hooks recorded; CALL only where calls were.
    :param has_copies: whether copies to or from a device were recorded.
    """
    for name, category in stack.strata:
        stratum = CALL if name == COPY and has_copies else name
        if stratum in recorded and (not stratum or recorded[stratum].any()):
            return NUMBER[stratum], category or FIXED.get(stack.stratum, "") * (not stratum)
    return NUMBER[""], ""


def stratum_weights(stratum: Numbers, ns: Floats, exact: Mapping[str, Numbers]) -> Floats:
    """Weights with which every recorded stratum has its exact total; samples in calls and uncovered samples are
    weighted together.

    :param stratum: of each sample; `ns` is what the sampler saw.
    """
    weight = np.zeros(len(ns))
    for names in WEIGHTED_TOGETHER:
        rows = np.isin(stratum, [NUMBER[name] for name in names])
        if rows.any():
            weight[rows] = ns[rows] * sum(int(exact[name].sum()) for name in names) / ns[rows].sum()
    return weight
