"""Divides samples into strata: which recorded stretch each belongs to, by its frames or by the region around it.

Hooks record stretches that frames show too. A region that the program marks leaves no frame. Its time is known exactly,
so samples within it must not be used to divide other time. The sampler's clock is accurate to milliseconds: of shorter
regions some samples are misclassified.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats, Intervals, Times, overlaps, times
from profiler.analyse.model import HOST_CATEGORIES, UNATTRIBUTED
from profiler.analyse.sampling.frames import BACKWARD, CALL, CHECKPOINT, COPY, DATA, FSYNC, OPTIMIZER, TOKENIZE, Stack
from profiler.analyse.sampling.stacks import Stacks
from profiler.analyse.timing.host_timeline import CODE, RECORDING, REGION, HostTimeline, region_category
from profiler.analyse.window import Window
from profiler.run.code_origin import OURS, code_owner
from profiler.run.model import Run, StepKind
from profiler.run.tables import OPERATORS, CallKind

Numbers = npt.NDArray[np.int64]

DIVIDED: Final = ("", BACKWARD, OPTIMIZER)
"""Strata whose time samples divide among categories. The empty name is time that no record covers, or that is only in
regions which say that Python ran."""
FIXED: Final[Mapping[str, str]] = {DATA: "input", TOKENIZE: "input", CHECKPOINT: "checkpoint", FSYNC: "waiting"}
"""Strata whose time keeps its category."""
LOADING: Final = (DATA, "loader start", "worker start", "dataset", "dataset map", "collate", "receive", "pin memory")
"""Regions during which stack frames also show the data loader."""
WEIGHTED_TOGETHER: Final = ((DATA,), (TOKENIZE,), (CHECKPOINT,), (FSYNC,), (BACKWARD,), (OPTIMIZER,), ("", CALL))
"""Strata whose samples are weighted together: frames always distinguish these groups, and their total is exact."""
STRATA: Final = (*DIVIDED, *FIXED, CALL)
NUMBER: Final = {name: number for number, name in enumerate(STRATA)}
_GROUP: Final = np.array([next(n for n, names in enumerate(WEIGHTED_TOGETHER) if name in names) for name in STRATA])
"""The place in WEIGHTED_TOGETHER of each stratum."""
HOOKS_FACT: Final = "package"
"""Fact that only hooks state: where their own code is."""
LEAVES: Final = (OTHER_LEAF := 0, TORCH_LEAF := 1, HOOK_LEAF := 2, CALLING_LEAF := 3)
"""The owners of the innermost frame. What a hook calls leaves no frame, and may be native or hold the GIL. So may a
line of another owner where operators were counted, unlike other lines of such code, which mostly hold it."""
REGION_KINDS: Final = len(STRATA) * len(HOST_CATEGORIES)
"""Numbers of stratum and category together: stratum * len(HOST_CATEGORIES) + category."""
_COPIES: Final = (CallKind.H2D, CallKind.D2H, CallKind.D2D)


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
    cut = overlaps(host.segments.begin, host.segments.end, Intervals(window.begin, window.end))
    kinds, steps = len(STRATA), len(window)
    cell = cut.right * kinds + _segment_strata(run, host)[cut.left]
    sums = np.bincount(cell, cut.end - cut.begin, minlength=kinds * steps).astype(np.int64).reshape(steps, kinds)
    sums[:, 0] += window.wall - sums.sum(axis=1)
    return {name: sums[:, number] for name, number in NUMBER.items()}


def _segment_strata(run: Run, host: HostTimeline) -> Numbers:
    """The stratum of each segment of the stepping thread's records."""
    by_name = np.array([_region_stratum(name) for name in run.names] or [0], np.int64)
    stratum = np.full(len(host.source), NUMBER[CALL])
    regions = host.source == REGION
    stratum[regions] = by_name[host.regions["name"][host.record[regions]]]
    stratum[(stratum == NUMBER[FSYNC]) & (host.category == CODE["checkpoint"])] = NUMBER[CHECKPOINT]
    return stratum


def _region_stratum(name: str) -> int:
    """Number of a region's stratum. A region that keeps its category and that no frame shows is treated as a call,
    whose time is exact."""
    if name in LOADING or name in NUMBER:
        return NUMBER[DATA if name in LOADING else name]
    return NUMBER[""] if region_category(name) == "python" and name != RECORDING else NUMBER[CALL]


class StackStrata:
    """The stratum and the category that each sampled stack of a run shows, by number of the stack.

    :param exact: recorded time of each stratum.
    """

    def __init__(self, stacks: Stacks, host: HostTimeline, exact: Mapping[str, Numbers]) -> None:
        run = stacks.run
        self.stacks = stacks
        self._segments = host.segments
        self._recorded = _segment_strata(run, host)
        recorded = {name for name, ns in exact.items() if not name or (ns.any() and (name != CALL or len(host.calls)))}
        has_copies = bool(np.isin(host.calls["kind"], _COPIES).any())
        # of each stack: its stratum, the category that its frames stand for (-1: none), and its leaf, one of LEAVES
        self._stratum, self.category, self.leaf = np.zeros((3, len(run.stack_frames)), np.int64)
        shown, calling = set[str](), _calling_lines(run)
        for number in np.unique(np.concatenate([run.stacks["stack"], run.gil_stacks["stack"]])).tolist():
            stack, frames = stacks[number], run.stack_frames[number]
            shown.update(name for name, _ in stack.strata)
            self._stratum[number], category = _stack_stratum(stack, recorded, has_copies=has_copies)
            self.category[number] = CODE.get(category, -1) if frames else CODE[UNATTRIBUTED]
            ours = bool(frames) and code_owner(frames[-1].file, stacks.folders) == OURS
            other = CALLING_LEAF if frames and (frames[-1].file, frames[-1].line) in calling else OTHER_LEAF
            self.leaf[number] = TORCH_LEAF if stack.in_torch else HOOK_LEAF if ours else other
        self._marked = _marked_regions(run, host, shown)

    def strata(self, stack: Numbers, region: Numbers) -> Numbers:
        """The stratum of each sample, of this stack and within `region` of REGION_KINDS (-1: none)."""
        stratum = self._stratum[stack]
        return np.where((stratum == NUMBER[""]) & (region >= 0), region // len(HOST_CATEGORIES), stratum)

    def groups(self) -> Numbers:
        """The place in WEIGHTED_TOGETHER of each stack's stratum, by the frames of the stack."""
        return _GROUP[self._stratum]

    def groups_at(self, moments: npt.ArrayLike) -> Numbers:
        """The place in WEIGHTED_TOGETHER of the stratum at each moment, by the records alone."""
        row, inside = self._segments_at(times(moments))
        stratum = np.full(len(row), NUMBER[""])
        stratum[inside] = self._recorded[row[inside]]
        return np.asarray(_GROUP[stratum])

    def regions_at(self, moments: npt.ArrayLike) -> Numbers:
        """The marked region that is open at each moment, in REGION_KINDS; -1 where there is none."""
        at = times(moments)
        if not (self._marked >= 0).any():
            return np.full(len(at), -1, np.int64)
        row, inside = self._segments_at(at)
        return np.where(inside, self._marked[row], -1).astype(np.int64)

    def _segments_at(self, at: Times) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """The last segment that begins before each moment (-1: none does), and whether the moment lies in it."""
        row = np.searchsorted(self._segments.begin, at, "right") - 1
        inside = row >= 0
        inside[inside] = at[inside] < self._segments.end[row[inside]]
        return row, inside


def _calling_lines(run: Run) -> set[tuple[str, int]]:
    """File and line of the Python code that called the operators which hooks counted."""
    fact = run.info.facts.get(OPERATORS)
    rows = fact.get("lines", []) if isinstance(fact, Mapping) else []
    return {(str(frames[0][0]), int(frames[0][1])) for frames, *_ in rows if frames}


def _stack_stratum(stack: Stack, recorded: set[str], *, has_copies: bool) -> tuple[int, str]:
    """Number of the innermost stratum that was recorded in this run, and the category of library frames inside of it.

    :param has_copies: whether copies to or from a device were recorded.
    """
    is_saving = CHECKPOINT in recorded and any(name == CHECKPOINT for name, _ in stack.strata)
    for name, category in stack.strata:
        stratum = CALL if name == COPY and has_copies else CHECKPOINT if name == FSYNC and is_saving else name
        if stratum in recorded:
            return NUMBER[stratum], category or FIXED.get(stack.stratum, "") * (not stratum)
    return NUMBER[""], ""


def _marked_regions(run: Run, host: HostTimeline, shown: set[str]) -> Numbers:
    """For each segment of `host`, its number if its region keeps its category and no frame shows it, else -1.

    :param shown: strata that frames of this run show: hooks write regions of these names, and the user may too.
    """
    stratum = _segment_strata(run, host)
    hidden = [number for number, name in enumerate(STRATA) if name not in shown and name not in DIVIDED]
    marked = (host.source == REGION) & np.isin(stratum, hidden)
    in_region = np.flatnonzero(marked)
    if RECORDING in run.names:
        marked[in_region] = host.regions["name"][host.record[in_region]] != run.names.index(RECORDING)
    return np.where(marked, stratum * len(HOST_CATEGORIES) + host.category, -1).astype(np.int64)


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
