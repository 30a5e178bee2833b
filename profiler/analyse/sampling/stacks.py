"""Classifies the stacks of a run, and tells the measured time that samples of each stretch stand for."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import Floats, Intervals, Times, overlaps, times, union
from profiler.analyse.model.measures import HOST_CATEGORIES, UNATTRIBUTED
from profiler.analyse.sampling.frames import (
    BACKWARD,
    CALL,
    CHECKPOINT,
    COPY,
    DATA,
    FSYNC,
    OPTIMIZER,
    TOKENIZE,
    Stack,
    classify_stack,
)
from profiler.analyse.timing.host_timeline import CODE, RECORDING, REGION, HostTimeline, region_category
from profiler.analyse.timing.scheduler import ThreadTime, thread_time
from profiler.analyse.window import NS_PER_S, Window, named_rows, thread_rows
from profiler.run.code_origin import (
    LIBRARY,
    OURS,
    TORCH,
    USER,
    code_owner,
    is_standard_library,
    package_folders,
    project_folder,
    relative_path,
    relative_site,
)
from profiler.run.model import Run, Site, StepKind, Table
from profiler.run.tables import OPERATORS, CallKind

PERIOD: Final = "stacks.period_s"
WINDOWS: Final = "stacks.gil_window_s"
_LOW_RATE: Final = 3.0
"""A window whose samples stand for so many times the time of those of a later window has a low rate. Before the first
step stacks are sampled 8 times a second, then up to 70 times in a burst, and after it 20 times."""
_ENOUGH: Final = 5.0
"""Samples that must remain for those of windows with a low rate to be left out."""
_RECORDER: Final = (
    *("agent/recorder.py", "agent/clocks.py", "agent/folder.py"),
    *("agent/buffers.py", "agent/hooks/_descent.py", "agent/hooks/_source.py"),  # in runs of former versions
)
"""Files of the recorder that call nothing of the program's. It reads CPU clocks, at which Linux notices that the
thread's time slice is used up, so on a busy core threads often wait there: 10% of the samples of cleanrl's dqn.py with
18 runnable threads on two cores."""
USUAL_PERIOD_S: Final = 0.01
"""Assumed for a sampler that did not record its period: a run requests 100 samples per second."""
_COMPREHENSION: Final = re.compile(r"((\.<locals>)?(\.|^)<(listcomp|dictcomp|setcomp|genexpr)>)+$")
Function = tuple[str, str]
"""File and name of a function."""


def function_of(site: Site) -> Function:
    """Return the function of a line; a comprehension belongs to the function that contains it."""
    return site.file, _COMPREHENSION.sub("", site.function) or "<module>"


class Stacks:
    """The stacks of a run, each classified once, with what the run states about its code and its sampler."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.folders = package_folders(run.info.facts)
        self._folder = project_folder(run)
        self._classified: dict[int, Stack] = {}
        self._user_frames: dict[int, tuple[Site, ...]] = {}
        self._hooks = _hooks(run.info.facts)
        self._weighted: dict[Window, tuple[Table, npt.NDArray[np.int64]]] = {}
        self._times: dict[Window, ThreadTime | None] = {}
        rows = named_rows(run, run.samples, PERIOD)
        self._periods = rows[rows["value"] > 0]
        self.period = float(np.median(self._periods["value"])) if len(self._periods) else None
        """Seconds that one sample of a thread stands for, in the median window; None where the sampler did not record
        it."""

    def __getitem__(self, number: int) -> Stack:
        if number not in self._classified:
            self._classified[number] = classify_stack(self.run.stack_frames[number], self.folders)
        return self._classified[number]

    def sample_count(self, samples: Table, ns: npt.NDArray[np.int64]) -> float:
        """Return how many samples of equal weight tell a share as precisely as `ns` of each row of `samples` do.

        This is the effective sample size of Kish (Survey Sampling, 1965). A row may stand for several samples. Windows
        have different rates: a sample at 8 a second weighs as much as ten at 80, and one second of each tells as much
        as 29 samples, not 88.
        """
        weight = ns.astype(np.float64)
        of_one = weight if self.period is None else np.zeros(len(samples))
        for pid in () if self.period is None else np.unique(samples["pid"]).tolist():
            own = samples["pid"] == pid
            windows = self._periods_of(pid)
            of_one[own] = windows["value"][_rows_at(windows, samples["begin"][own])] * NS_PER_S
        squares = float(weight @ of_one)
        return float(weight.sum()) ** 2 / squares if squares else 0.0

    def _periods_of(self, pid: int) -> Table:
        """Return the rows of PERIOD of the windows in which a process was sampled, in their order; at least one if any
        was."""
        own = self._periods[np.isin(self._periods["pid"], (pid, 0))]
        return np.sort(own if len(own) else self._periods, order="time")

    @cached_property
    def in_recorder(self) -> npt.NDArray[np.bool_]:
        """Return a mask over all stacks: whether the innermost frame outside of the standard library is the
        recorder's."""
        leaves = (
            next((site.file for site in reversed(frames) if not is_standard_library(site.file)), "")
            for frames in self.run.stack_frames
        )
        return np.array(
            [file.endswith(_RECORDER) and code_owner(file, self.folders) == OURS for file in leaves], np.bool_
        )

    def weighted_samples(self, window: Window) -> tuple[Table, npt.NDArray[np.int64]]:
        """Return the stepping thread's samples, and how many ns of measured steps each stands for.

        A sample that was taken before a step, while the program was set up, tells nothing of the step, however long it
        is until the next sample. Nor do the few of the first steps count that were taken at the low rate of the time
        before: each would stand for many others. Nor do samples in the recorder, whose own time is short.
        """
        if window not in self._weighted:
            self._weighted[window] = self._weigh(window)
        return self._weighted[window]

    def thread_time(self, window: Window) -> ThreadTime | None:
        """Return how the clocks of the stepping thread divide its measured steps; None where they were not read."""
        if window not in self._times:
            self._times[window] = thread_time(self.run, window.pid, window.tid, window.spans)
        return self._times[window]

    def _weigh(self, window: Window) -> tuple[Table, npt.NDArray[np.int64]]:
        samples = thread_rows(self.run.stacks, window)
        counts = (window.step_rows(samples["begin"]) >= 0) & ~self.in_recorder[samples["stack"]]
        weight = np.where(counts, sample_ns(samples, window.spans), 0)
        samples, weight = samples[weight > 0], weight[weight > 0]
        windows = self._periods_of(window.pid)
        if len(windows) > 1 and len(samples):
            period = windows["value"]
            shortest_later = np.minimum.accumulate(period[::-1])[::-1]
            row = _rows_at(windows, samples["begin"])
            often = (period <= _LOW_RATE * shortest_later)[row]
            if (weight[often] / period[row][often]).sum() >= _ENOUGH * NS_PER_S:
                return samples[often], weight[often]
        return samples, weight

    def recorder_share(self, window: Window) -> float:
        """Return the share of the stepping thread's samples in the measured steps that were taken in the recorder."""
        samples = thread_rows(self.run.stacks, window)
        samples = samples[window.step_rows(samples["begin"]) >= 0]
        return float(self.in_recorder[samples["stack"]].mean()) if len(samples) else 0.0

    def is_user(self, site: Site) -> bool:
        """Return whether a frame is the user's code."""
        return code_owner(site.file, self.folders) == USER

    def user_frames(self, number: int) -> tuple[Site, ...]:
        """Return the user's frames of a stack; a comprehension belongs to the function that contains it."""
        if number not in self._user_frames:
            user = list[Site]()
            for site in filter(self.is_user, self.run.stack_frames[number]):
                inside = user and function_of(site) == function_of(user[-1]) and _COMPREHENSION.search(site.function)
                if not inside:
                    user.append(Site(site.file, site.line, function_of(site)[1], site.source))
            self._user_frames[number] = tuple(user)
        return self._user_frames[number]

    def registration(self, number: int) -> Site | None:
        """Return the user's line that registered the innermost hook in a stack, which torch calls; None: there is none,
        or it is not known."""
        frames = self.run.stack_frames[number] if self._hooks else ()
        for above, site in reversed(tuple(pairwise(frames))):
            for hook, registered in self._hooks.get(site.function, ()):
                is_other = site.function.endswith("<lambda>") and site.line != hook.line
                if hook.is_in_file_of(site) and not is_other and code_owner(above.file, self.folders) == TORCH:
                    return self.relative(registered)
        return None

    def frames_below(self, number: int) -> tuple[tuple[Site, str], ...]:
        """Return the frames of a stack below its innermost line of the user, each with its owner; without the
        profiler's."""
        frames = self.run.stack_frames[number]
        owners = [code_owner(site.file, self.folders) for site in frames]
        innermost = max((at for at, owner in enumerate(owners) if owner == USER), default=-1)
        below = zip(frames[innermost + 1 :], owners[innermost + 1 :], strict=True)
        return tuple((site, owner) for site, owner in below if owner != OURS)

    def library_frames(self, number: int) -> tuple[Site, ...]:
        """Return the frames of libraries among them, without torch and the standard library."""
        return tuple(
            site for site, owner in self.frames_below(number) if owner == LIBRARY and not is_standard_library(site.file)
        )

    def relative(self, site: Site) -> Site:
        """Return the site with its file relative to the program's project where it is below that."""
        return relative_site(site, self._folder)

    def portable(self, site: Site) -> Site:
        """Return the same, with a file of a package relative to the folder in which packages are installed."""
        path = relative_path(site.file, self.folders)
        return self.relative(site) if path == site.file else replace(site, file=path)


def _hooks(facts: Mapping[str, Any]) -> dict[str, list[tuple[Site, Site]]]:
    """Return the hooks by the name of their function, each with the line that registered it."""
    hooks = defaultdict[str, list[tuple[Site, Site]]](list)
    for each in facts.get("module_hooks", ()):
        if "registered" in each:
            hooks[each["function"]].append((Site.from_fact(each), Site.from_fact(each["registered"])))
    return hooks


def sample_ns(samples: Table, spans: Intervals) -> npt.NDArray[np.int64]:
    """Return how many ns of `spans` each sample stands for."""
    cut = overlaps(times(samples["begin"]), times(samples["end"]), spans)
    return np.bincount(cut.left, cut.end - cut.begin, minlength=len(samples)).astype(np.int64)


def gil_windows(run: Run, window: Window) -> Intervals:
    """Return the measured time in which the GIL's holder was sampled."""
    rows = named_rows(run, run.samples, WINDOWS)
    windows = window_intervals(rows[(rows["pid"] == window.pid) | (rows["pid"] == 0)])
    inside = overlaps(windows.begin, windows.end, window.spans)
    return union(inside.begin, inside.end)


def window_intervals(rows: Table) -> Intervals:
    """Return the windows of the GIL's holder: a row of WINDOWS has the end of one as its time and its length as its
    value."""
    end = times(rows["time"])
    return union(end - times(np.rint(rows["value"] * NS_PER_S)), end)


def _rows_at(windows: Table, moments: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the row of the window in which each moment lies: a row has the end of its window."""
    return times(np.minimum(np.searchsorted(windows["time"], times(moments), "right"), len(windows) - 1))


# ---------------------------------------------------------------- strata: what the samples of a stretch stand for

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
    """Return whether hooks recorded this run: they found its steps, or recorded everything else if the program marks
    its steps itself.

    Without hooks, a program that marks its steps has marks for the other parts too.
    """
    if run.step is not None and run.step.kind is StepKind.MARKED:
        return HOOKS_FACT in run.info.facts
    return bool(len(run.boundaries)) or (run.step is not None and run.step.is_whole_run)


def stratum_times(run: Run, window: Window, host: HostTimeline) -> dict[str, Numbers]:
    """Return the ns of each stratum in each measured step, from the records alone; what they leave belongs to ''."""
    cut = overlaps(host.segments.begin, host.segments.end, Intervals(window.begin, window.end))
    kinds, steps = len(STRATA), len(window)
    cell = cut.right * kinds + _segment_strata(run, host)[cut.left]
    sums = np.bincount(cell, cut.end - cut.begin, minlength=kinds * steps).astype(np.int64).reshape(steps, kinds)
    sums[:, 0] += window.wall - sums.sum(axis=1)
    return {name: sums[:, number] for name, number in NUMBER.items()}


def _segment_strata(run: Run, host: HostTimeline) -> Numbers:
    """Return the stratum of each segment of the stepping thread's records."""
    by_name = np.array([_region_stratum(name) for name in run.names] or [0], np.int64)
    stratum = np.full(len(host.source), NUMBER[CALL])
    regions = host.source == REGION
    stratum[regions] = by_name[host.regions["name"][host.record[regions]]]
    stratum[(stratum == NUMBER[FSYNC]) & (host.category == CODE["checkpoint"])] = NUMBER[CHECKPOINT]
    return stratum


def _region_stratum(name: str) -> int:
    """Return the number of a region's stratum. A region that keeps its category and that no frame shows is treated as a
    call, whose time is exact."""
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
        # the lines of Python code that called the operators which hooks counted
        fact = run.info.facts.get(OPERATORS)
        rows = fact.get("lines", []) if isinstance(fact, Mapping) else []
        calling = {(str(frames[0][0]), int(frames[0][1])) for frames, *_ in rows if frames}
        shown = set[str]()
        for number in np.unique(np.concatenate([run.stacks["stack"], run.gil_stacks["stack"]])).tolist():
            stack, frames = stacks[number], run.stack_frames[number]
            shown.update(name for name, _ in stack.strata)
            self._stratum[number], category = _stack_stratum(stack, recorded, has_copies=has_copies)
            self.category[number] = CODE.get(category, -1) if frames else CODE[UNATTRIBUTED]
            ours = bool(frames) and code_owner(frames[-1].file, stacks.folders) == OURS
            other = CALLING_LEAF if frames and (frames[-1].file, frames[-1].line) in calling else OTHER_LEAF
            self.leaf[number] = TORCH_LEAF if stack.in_torch else HOOK_LEAF if ours else other
        # segments of regions that keep their category and that no frame shows
        hidden = [number for number, name in enumerate(STRATA) if name not in shown and name not in DIVIDED]
        marked = (host.source == REGION) & np.isin(self._recorded, hidden)
        in_region = np.flatnonzero(marked)
        if RECORDING in run.names:
            marked[in_region] = host.regions["name"][host.record[in_region]] != run.names.index(RECORDING)
        region = self._recorded * len(HOST_CATEGORIES) + host.category
        self._marked = np.where(marked, region, -1).astype(np.int64)

    def strata(self, stack: Numbers, region: Numbers) -> Numbers:
        """Return the stratum of each sample, of this stack and within `region` of REGION_KINDS (-1: none)."""
        stratum = self._stratum[stack]
        return np.where((stratum == NUMBER[""]) & (region >= 0), region // len(HOST_CATEGORIES), stratum)

    def groups(self) -> Numbers:
        """Return the place in WEIGHTED_TOGETHER of each stack's stratum, by the frames of the stack."""
        return _GROUP[self._stratum]

    def groups_at(self, moments: npt.ArrayLike) -> Numbers:
        """Return the place in WEIGHTED_TOGETHER of the stratum at each moment, by the records alone."""
        row, inside = self._segments_at(times(moments))
        stratum = np.full(len(row), NUMBER[""])
        stratum[inside] = self._recorded[row[inside]]
        return np.asarray(_GROUP[stratum])

    def regions_at(self, moments: npt.ArrayLike) -> Numbers:
        """Return the marked region that is open at each moment, in REGION_KINDS; -1 where there is none."""
        at = times(moments)
        if not (self._marked >= 0).any():
            return np.full(len(at), -1, np.int64)
        row, inside = self._segments_at(at)
        return np.where(inside, self._marked[row], -1).astype(np.int64)

    def _segments_at(self, at: Times) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Return the last segment that begins before each moment (-1: none does), and whether the moment lies in it."""
        row = np.searchsorted(self._segments.begin, at, "right") - 1
        inside = row >= 0
        inside[inside] = at[inside] < self._segments.end[row[inside]]
        return row, inside


def _stack_stratum(stack: Stack, recorded: set[str], *, has_copies: bool) -> tuple[int, str]:
    """Return the number of the innermost stratum that was recorded in this run, and the category of library frames
    inside of it.

    :param has_copies: whether copies to or from a device were recorded.
    """
    is_saving = CHECKPOINT in recorded and any(name == CHECKPOINT for name, _ in stack.strata)
    for name, category in stack.strata:
        stratum = CALL if name == COPY and has_copies else CHECKPOINT if name == FSYNC and is_saving else name
        if stratum in recorded:
            return NUMBER[stratum], category or FIXED.get(stack.stratum, "") * (not stratum)
    return NUMBER[""], ""


def stratum_weights(stratum: Numbers, ns: Floats, exact: Mapping[str, Numbers]) -> Floats:
    """Return the weights with which every recorded stratum has its exact total; samples in calls and uncovered samples
    are weighted together.

    :param stratum: of each sample; `ns` is what the sampler saw.
    """
    weight = np.zeros(len(ns))
    for names in WEIGHTED_TOGETHER:
        rows = np.isin(stratum, [NUMBER[name] for name in names])
        if rows.any():
            weight[rows] = ns[rows] * sum(int(exact[name].sum()) for name in names) / ns[rows].sum()
    return weight
