"""What recorded stretch covers a moment or a sample, and which of these stretches samples divide further."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.categories import RECORDING, region_category
from profiler.analyse.frames import BACKWARD, CALL, CHECKPOINT, COPY, DATA, OPTIMIZER, TOKENIZE, Stack
from profiler.analyse.host import REGION, HostTimeline
from profiler.analyse.timeline import Intervals, overlaps
from profiler.analyse.window import Window
from profiler.run.model import Run, StepKind

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

POOLS: Final = ("", BACKWARD, OPTIMIZER)
"""Covers whose time samples divide; empty: what nothing covers, and regions that say only that Python ran."""
WHOLE: Final[Mapping[str, str]] = {DATA: "input", TOKENIZE: "input", CHECKPOINT: "checkpoint"}
"""Covers whose time keeps its category."""
LOADING: Final = (DATA, "loader start", "worker start", "dataset", "dataset map", "collate", "receive", "pin memory")
"""Regions in which frames show the loader."""
STRATA: Final = ((DATA,), (TOKENIZE,), (CHECKPOINT,), (BACKWARD,), (OPTIMIZER,), ("", CALL))
"""Covers whose samples are weighed together: frames tell them apart for sure, and their total is exact."""
COVERS: Final = (*POOLS, *WHOLE, CALL)
HOOKS_WERE_IN: Final = "package"
"""Fact that only hooks state: where their own code lies."""
NUMBER: Final = {name: number for number, name in enumerate(COVERS)}


def hooked(run: Run) -> bool:
    """Whether hooks were in the program and found its steps, or all else: it may mark its steps itself.

    Where there are none, a program that marks its steps has marks for the rest too.
    """
    if run.step and run.step.kind is StepKind.MARKED:
        return HOOKS_WERE_IN in run.info.facts
    return bool(len(run.boundaries)) or (run.step is not None and run.step.is_whole_run)


def exact_covers(run: Run, window: Window, host: HostTimeline) -> dict[str, Numbers]:
    """ns of each cover in each measured step; what is left is that of ''."""
    segments = host.segments
    cut = overlaps(segments.begin, segments.end, Intervals(window.begin, window.end))
    owner = np.full(len(segments.begin), NUMBER[CALL])
    by_name = np.array([cover_number(name) for name in run.names] or [0], np.int64)
    regions = np.flatnonzero(host.source == REGION)
    owner[regions] = by_name[host.regions["name"][host.record[regions]]]
    kinds, steps = len(COVERS), len(window)
    cell = cut.right * kinds + owner[cut.left]
    sums = np.bincount(cell, cut.end - cut.begin, minlength=kinds * steps).astype(np.int64).reshape(steps, kinds)
    sums[:, 0] += window.wall - sums.sum(axis=1)
    return {name: sums[:, number] for name, number in NUMBER.items()}


def cover_number(name: str) -> int:
    """A region that keeps its category, and is not one that frames tell, is as good as a call: it is whole."""
    if name in LOADING or name in NUMBER:
        return NUMBER[DATA if name in LOADING else name]
    return NUMBER[""] if region_category(name) == "python" and name != RECORDING else NUMBER[CALL]


def cover_of(stack: Stack, exact: Mapping[str, Numbers], *, copies: bool) -> tuple[int, str]:
    """The innermost cover that was recorded in this run, and what library frames inside of it do.

    :param exact: the covers that hooks recorded; of CALL only where calls were.
    :param copies: whether copies to or from a device were recorded.
    """
    for name, doing in stack.covers:
        cover = CALL if name == COPY and copies else name
        if cover in exact and (not cover or exact[cover].any()):
            return NUMBER[cover], doing or WHOLE.get(stack.cover, "") * (not cover)
    return NUMBER[""], ""


def per_stack(number: Numbers, values: Mapping[int, float]) -> Floats:
    table = np.zeros(int(number.max(initial=0)) + 1)
    table[list(values)] = list(values.values())
    return table[number]


def corrected(cover: Numbers, raw: Floats, exact: Mapping[str, Numbers]) -> Floats:
    """Weights with which every recorded cover has its exact total; what is in calls counts with what nothing covers."""
    weight = np.zeros(len(raw))
    for names in STRATA:
        rows = np.isin(cover, [NUMBER[name] for name in names])
        if rows.any():
            weight[rows] = raw[rows] * sum(int(exact[name].sum()) for name in names) / raw[rows].sum()
    return weight
