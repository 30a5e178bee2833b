"""Classifies the samples of a run: by frames, by what hooks recorded, and by regions that the program marks itself.

A region that the program marks leaves no frame. Its time is known exactly, so samples within it must not be used to
divide other time. The sampler's clock is accurate to milliseconds: of shorter regions some samples are misclassified.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.intervals import overlaps, times
from profiler.analyse.model import HOST_CATEGORIES
from profiler.analyse.sampling.code_origin import OURS, PackageFolders, code_owner, package_folders
from profiler.analyse.sampling.frames import CALL, Stack, classify_stack
from profiler.analyse.sampling.strata import DIVIDED, NUMBER, STRATA, Floats, Numbers, region_stratum, stack_stratum
from profiler.analyse.timing.categories import CODE, RECORDING
from profiler.analyse.timing.host_timeline import REGION, HostTimeline
from profiler.analyse.window import Window
from profiler.run.model import Run, Site
from profiler.run.tables import CallKind

LEAVES: Final = (OTHER_LEAF := 0, TORCH_LEAF := 1, HOOK_LEAF := 2)
"""The owners of the innermost frame. What a hook calls leaves no frame, and may be native or hold the GIL."""
REGION_KINDS: Final = len(STRATA) * len(HOST_CATEGORIES)
"""Numbers of stratum and category together: stratum * len(HOST_CATEGORIES) + category."""
_COPIES: Final = (CallKind.H2D, CallKind.D2H, CallKind.D2D)


@dataclass(frozen=True, eq=False, slots=True)
class StackClassifier:
    """How the stacks of one run are classified."""

    run: Run
    host: HostTimeline
    folders: PackageFolders
    recorded: Mapping[str, Numbers]
    """The strata that hooks recorded."""
    has_copies: bool
    """Whether copies to or from a device were recorded."""
    marked_regions: Numbers
    """For each segment, its number in REGION_KINDS if the program marked its region and no frame shows it, else -1."""

    def stacks(self, number: Numbers) -> dict[int, Stack]:
        """The classified stacks of these numbers."""
        return {one: classify_stack(self.run.stack_frames[one], self.folders) for one in np.unique(number).tolist()}

    def strata(self, stacks: Mapping[int, Stack], number: Numbers, region: Numbers) -> Numbers:
        """The stratum of each sample, of the stack `number` and within `region` of REGION_KINDS (-1: none)."""
        strata = {
            stack_number: stack_stratum(stack, self.recorded, has_copies=self.has_copies)[0]
            for stack_number, stack in stacks.items()
        }
        stratum = per_sample(number, strata).astype(np.int64)
        return np.where((stratum == NUMBER[""]) & (region >= 0), region // len(HOST_CATEGORIES), stratum)

    def categories(self, stacks: Mapping[int, Stack], number: Numbers) -> Numbers:
        """The category that frames of each sample stand for, or -1; a stack without frames is unattributed."""
        codes = {}
        for stack_number, stack in stacks.items():
            category = stack_stratum(stack, self.recorded, has_copies=self.has_copies)[1]
            has_frames = bool(self.run.stack_frames[stack_number])
            codes[stack_number] = CODE.get(category, -1) if has_frames else CODE["unattributed"]
        return per_sample(number, codes).astype(np.int64)

    def leaves(self, stacks: Mapping[int, Stack], number: Numbers) -> Numbers:
        """For each sample, the owner of its innermost frame, which is one of LEAVES."""
        leaves = {}
        for stack_number, stack in stacks.items():
            frames = self.run.stack_frames[stack_number]
            ours = bool(frames) and code_owner(frames[-1].file, self.folders) == OURS
            leaves[stack_number] = TORCH_LEAF if stack.in_torch else HOOK_LEAF if ours else OTHER_LEAF
        return per_sample(number, leaves).astype(np.int64)

    def regions_at(self, moments: npt.ArrayLike) -> Numbers:
        """The marked region that is open at each moment, in REGION_KINDS; -1 where there is none."""
        at, segments, marked = times(moments), self.host.segments, self.marked_regions
        if not (marked >= 0).any():
            return np.full(len(at), -1, np.int64)
        row = np.maximum(np.searchsorted(segments.begin, at, "right") - 1, 0)
        inside = (segments.begin[row] <= at) & (at < segments.end[row])
        return np.where(inside, marked[row], -1).astype(np.int64)


def stack_classifier(run: Run, host: HostTimeline, exact: Mapping[str, Numbers]) -> StackClassifier:
    """The classifier of `run`.

    :param exact: recorded time of each stratum.
    """
    folders = package_folders(run)
    has_copies = bool(np.isin(host.calls["kind"], _COPIES).any())
    recorded = {name: ns for name, ns in exact.items() if name != CALL or len(host.calls)}
    sampled = np.unique(np.concatenate([run.stacks["stack"], run.gil_stacks["stack"]])).tolist()
    framed = {
        NUMBER[name]
        for number in sampled
        for name, _ in classify_stack(run.stack_frames[number], folders).strata
        if name in NUMBER
    }
    return StackClassifier(run, host, folders, recorded, has_copies, _marked_regions(run, host, framed))


def _marked_regions(run: Run, host: HostTimeline, framed: Collection[int]) -> Numbers:
    """For each segment of `host`, its number if its region keeps its category and no frame shows it, else -1.

    :param framed: strata that frames of this run show: hooks write regions of these names, and the user may too.
    """
    strata = np.array([region_stratum(name) for name in run.names] or [0], np.int64)
    hidden = [stratum not in framed and STRATA[stratum] not in DIVIDED for stratum in strata.tolist()]
    by_name = np.where(np.array(hidden) & np.array([name != RECORDING for name in run.names or ("",)]), strata, -1)
    in_region = np.flatnonzero(host.source == REGION)
    stratum = np.full(len(host.source), -1, np.int64)
    stratum[in_region] = by_name[host.regions["name"][host.record[in_region]]]
    return np.where(stratum < 0, -1, stratum * len(HOST_CATEGORIES) + host.category).astype(np.int64)


def per_sample(number: Numbers, values: Mapping[int, float]) -> Floats:
    """The value of each sample's stack."""
    table = np.zeros(int(number.max(initial=0)) + 1)
    table[list(values)] = list(values.values())
    return table[number]


def call_categories(run: Run, host: HostTimeline, window: Window, number: Numbers, region: Numbers) -> Floats:
    """For each sample, the mix of categories of the calls that its innermost line with calls made (or of all calls), or
    the category of the marked region around it (samples x categories)."""
    average, by_line = _call_mixes(run, host, window)
    stacks, row = np.unique(number, return_inverse=True)
    mixes = np.array([_stack_mix(run.stack_frames[stack], average, by_line) for stack in stacks.tolist()])[row]
    inside = np.flatnonzero(region >= 0)
    mixes[inside] = np.eye(len(HOST_CATEGORIES))[region[inside] % len(HOST_CATEGORIES)]
    return mixes


_Mixes = Mapping[tuple[str, int], Floats]


def _call_mixes(run: Run, host: HostTimeline, window: Window) -> tuple[Floats, _Mixes]:
    """The categories of the measured time in calls: of all of it, and by the line that made them."""
    in_call = np.flatnonzero(host.source != REGION)
    cut = overlaps(host.segments.begin[in_call], host.segments.end[in_call], window.spans)
    row, length = in_call[cut.left], (cut.end - cut.begin).astype(np.float64)
    site, kinds = host.calls["site"][host.record[row]].astype(np.int64) + 1, len(HOST_CATEGORIES)
    cells = np.bincount(site * kinds + host.category[row], length, minlength=(len(run.sites) + 1) * kinds)
    table = cells.reshape(-1, kinds)
    total = table.sum(axis=0)
    if not total.sum():
        total[CODE["python"]] = 1.0
    sums: dict[tuple[str, int], Floats] = {}
    for number in np.flatnonzero(table[1:].any(axis=1)).tolist():
        line = run.sites[number].file, run.sites[number].line
        sums[line] = sums.get(line, np.zeros(kinds)) + table[number + 1]
    return np.asarray(total / total.sum(), np.float64), {line: ns / ns.sum() for line, ns in sums.items()}


def _stack_mix(frames: tuple[Site, ...], average: Floats, by_line: _Mixes) -> Floats:
    for site in reversed(frames):
        if (mix := by_line.get((site.file, site.line))) is not None:
            return mix
    return average
