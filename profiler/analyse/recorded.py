"""What records say of samples where frames do not: whether a region of the user's own was open, and what calls were.

A region that the program names itself leaves no frame. Its time is known exactly, so the samples of that time must not
say what ran elsewhere. The sampler's clock is good to milliseconds: of shorter regions some samples are taken wrongly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from profiler.analyse.categories import CODE, RECORDING
from profiler.analyse.covers import COVERS, POOLS, Floats, Numbers, cover_number
from profiler.analyse.host import REGION, HostTimeline
from profiler.analyse.model import HOST_CATEGORIES
from profiler.analyse.timeline import overlaps, times
from profiler.analyse.window import Window
from profiler.run.model import Run, Site

_Mix = Mapping[tuple[str, int], Floats]


KINDS: Final = len(COVERS) * len(HOST_CATEGORIES)
"""Numbers of cover and category together: cover * len(HOST_CATEGORIES) + category."""


def own_regions(run: Run, host: HostTimeline, framed: Collection[int]) -> Numbers:
    """Of each segment of `host` in a region that keeps its category and that no frame shows: its number in KINDS.

    -1 of all others.

    :param framed: the covers that frames of this run show: hooks write regions of these names, and the user may too.
    """
    covers = np.array([cover_number(name) for name in run.names] or [0], np.int64)
    hidden = [cover not in framed and COVERS[cover] not in POOLS for cover in covers.tolist()]
    named = np.where(np.array(hidden) & np.array([name != RECORDING for name in run.names or ("",)]), covers, -1)
    mine = np.flatnonzero(host.source == REGION)
    cover = np.full(len(host.source), -1, np.int64)
    cover[mine] = named[host.regions["name"][host.record[mine]]]
    return np.where(cover < 0, -1, cover * len(HOST_CATEGORIES) + host.category).astype(np.int64)


def region_at(host: HostTimeline, own: Numbers, moments: npt.ArrayLike) -> Numbers:
    """What `own` says of the segment that is open at each moment; -1 where none is."""
    at, segments = times(moments), host.segments
    if not (own >= 0).any():
        return np.full(len(at), -1, np.int64)
    row = np.maximum(np.searchsorted(segments.begin, at, "right") - 1, 0)
    return np.where((segments.begin[row] <= at) & (at < segments.end[row]), own[row], -1).astype(np.int64)


def call_mixes(run: Run, host: HostTimeline, window: Window) -> tuple[Floats, _Mix]:
    """The categories of the measured time in calls: of all of it, and by the line that made them."""
    own = np.flatnonzero(host.source != REGION)
    cut = overlaps(host.segments.begin[own], host.segments.end[own], window.spans)
    row, length = own[cut.left], (cut.end - cut.begin).astype(np.float64)
    site, kinds = host.calls["site"][host.record[row]].astype(np.int64) + 1, len(HOST_CATEGORIES)
    cells = np.bincount(site * kinds + host.category[row], length, minlength=(len(run.sites) + 1) * kinds)
    table = cells.reshape(-1, kinds)
    total = table.sum(axis=0)
    if not total.sum():
        total[CODE["python"]] = 1.0
    sums: dict[tuple[str, int], Floats] = {}
    for number in np.flatnonzero(table[1:].any(axis=1)).tolist():
        where = run.sites[number].file, run.sites[number].line
        sums[where] = sums.get(where, np.zeros(kinds)) + table[number + 1]
    return np.asarray(total / total.sum(), np.float64), {where: one / one.sum() for where, one in sums.items()}


def mix_of(frames: tuple[Site, ...], every: Floats, by_line: _Mix) -> Floats:
    """The categories of the calls below a stack: of its innermost line that made any, or of all."""
    for site in reversed(frames):
        if (found := by_line.get((site.file, site.line))) is not None:
            return found
    return every


def of_calls(run: Run, host: HostTimeline, window: Window, number: Numbers, region: Numbers) -> Floats:
    """Of each sample the categories of calls below its stack, or of the region that it is in."""
    every, by_line = call_mixes(run, host, window)
    each, row = np.unique(number, return_inverse=True)
    mixes = np.array([mix_of(run.stack_frames[one], every, by_line) for one in each.tolist()])[row]
    inside = np.flatnonzero(region >= 0)
    mixes[inside] = np.eye(len(HOST_CATEGORIES))[region[inside] % len(HOST_CATEGORIES)]
    return mixes
