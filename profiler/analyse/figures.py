"""Selects what a report draws of a run: a typical step of the host and the device, and flame graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePath
from typing import Final

import numpy as np

from profiler.analyse.intervals import Intervals, Segments, Times, covered_within, innermost, overlaps, times
from profiler.analyse.model.device import Timeline, TimelineEvent, TimelineLane
from profiler.analyse.model.host import FlameDiff, FlameNode
from profiler.analyse.model.measures import HOST_CATEGORIES
from profiler.analyse.sampling.stacks import Stacks
from profiler.analyse.timing.breakdown import ACTIVITY_CATEGORIES, NO_ACTIVITIES, busy_intervals, no_queue_reason
from profiler.analyse.timing.counters import call_counts
from profiler.analyse.timing.host_timeline import BLOCKED, REGION, HostTimeline, full_timeline
from profiler.analyse.window import LEVEL_LIGHT, NS_PER_S, Window, device_window, rank_windows
from profiler.core.errors import Notice
from profiler.run.code_origin import OURS, code_owner
from profiler.run.filter import rows_by
from profiler.run.model import Run, Site
from profiler.run.tables import CallKind

ALLOCATE: Final = "allocate"
"""Category of calls that allocate or free memory of the device, which a breakdown counts as `launch`."""
MAX_EVENTS: Final = 4_000
"""Events of a lane that an excerpt holds, about 30 kB of a page; the excerpt ends where one lane would have more."""
CALLS: Final = 200
"""Events of the host by which a place is chosen: of a loop over tokens, those of some ten tokens."""
ALIKE: Final = 0.25
"""How far a step may be from the median length, as a share of it, and still be one of about that length."""
PLACES: Final = 41
"""Places within a step of which one is chosen."""
PARTS: Final = 1_000
"""Parts in which a step is drawn that has too many events: about one for each pixel of a page."""
MAX_STREAMS: Final = 4
"""Streams of the device that have a lane: those that are busy longest."""


def timeline_excerpt(run: Run, busy: float | None = None) -> Timeline:
    """Select the excerpt of `run`: a measured step, and what follows it, for as long as no lane has more than
    MAX_EVENTS events.

    Another program may have taken the core in any step. So the excerpt shows a step of about median length in which the
    device works for nearly the share `busy` of the time. If that step has more events, the excerpt begins within it, at
    a place that is chosen in the same way.

    :param busy: the device's share of the time over all steps.
        None: the step nearest to the median, and its middle.
    """
    window = device_window(run, rank_windows(run)[0])
    if reason := no_queue_reason(run, window):
        return Timeline(reason=reason)
    host, devices = full_timeline(run, window), _device_segments(run, window)
    working = busy_intervals(run, window)
    apart = np.abs(window.wall / np.median(window.wall) - 1)
    nearest = np.argsort(apart, kind="stable")[: max(1, int((apart <= ALIKE).sum()))]
    chosen = int(nearest[_most_typical(working, window.begin[nearest], window.end[nearest], busy)])
    step_begin, step_end = int(window.begin[chosen]), int(window.end[chosen])
    begin, end = step_begin, int(window.end[-1])
    segments = [host.segments, *(each for _, each in devices)]
    if min(_last_end(each, begin) for each in segments) < step_end:
        calls = _rows(host.segments, step_begin, step_end)
        places = np.linspace(calls.start, max(calls.start, calls.stop - 1 - CALLS), PLACES).astype(np.int64)
        places = places[np.argsort(np.abs(np.arange(PLACES) - PLACES // 2), kind="stable")]
        begins, ends = (host.segments.begin[np.minimum(rows, calls.stop - 1)] for rows in (places, places + CALLS))
        begin = max(begin, int(begins[_most_typical(working, begins, ends, busy)]))
    end = min(end, *(_last_end(each, begin) for each in segments))
    events = _Events(run, begin)
    lanes = [events.host_lane(host, end), *(events.device_lane(*device, end) for device in devices)]
    is_part = end < step_end or begin > step_begin
    whole = tuple(events.whole_lanes(host, devices, step_begin, step_end)) if is_part else ()
    if not any(len(lane.begin) for lane in (*lanes[1:], *whole[1:])):
        return Timeline(reason=NO_ACTIVITIES)
    return Timeline(
        lanes=tuple(lanes),
        events=tuple(events.numbers),
        length=(end - begin) / NS_PER_S,
        step=int(window.steps["index"][chosen]),
        step_length=(step_end - step_begin) / NS_PER_S,
        offset=(begin - step_begin) / NS_PER_S,
        tokens=int(window.steps["tokens"][chosen]),
        parts=len(_rows(host.segments, step_begin, step_end)),
        whole=whole,
    )


def _most_typical(working: Intervals, begins: Times, ends: Times, busy: float | None) -> int:
    """Return the number of the stretch in which the device works closest to the share `busy` of the time; else the
    first."""
    if busy is None:
        return 0
    shares = covered_within(working, begins, ends) / np.maximum(ends - begins, 1)
    return int(np.argmin(np.abs(shares - busy)))


def _rows(segments: Segments, begin: int, end: int) -> range:
    """Return the rows of the segments that overlap [begin, end)."""
    first = int(np.searchsorted(segments.end, begin, "right"))
    return range(first, int(np.searchsorted(segments.begin, end, "left")))


def _last_end(segments: Segments, begin: int) -> int:
    """Return where a lane that begins at `begin` has MAX_EVENTS events."""
    first = int(np.searchsorted(segments.end, begin, "right"))
    last = first + MAX_EVENTS
    return int(segments.begin[last]) if last < len(segments.begin) else np.iinfo(np.int64).max


def _device_segments(run: Run, window: Window) -> list[tuple[str, Segments]]:
    """Return the streams with a lane, with their names and the pieces of their activities; `owner` is a row of the
    run's activities."""
    numbers = np.flatnonzero(run.activities["pid"] == window.pid)
    activities = run.activities[numbers]
    by_stream = []
    for device, of_device in sorted(rows_by(activities, "device").items()):
        for stream, rows in rows_by(of_device, "stream").items():
            by_stream.append((-int(times(rows["end"] - rows["begin"]).sum()), device, stream))
    by_stream = sorted(sorted(by_stream)[:MAX_STREAMS], key=lambda entry: (entry[1], entry[0]))
    several = len({device for _, device, _ in by_stream}) > 1
    lanes = []
    for _, device, stream in by_stream:
        rows = numbers[(activities["device"] == device) & (activities["stream"] == stream)]
        cut = innermost(run.activities["begin"][rows], run.activities["end"][rows])
        name = "device" if len(by_stream) == 1 else f"stream {stream}"
        name = f"device {device}, {name}" if several else name
        lanes.append((name, Segments(cut.begin, cut.end, rows[cut.owner], cut.crossings)))
    return lanes


class _Events:
    """Numbers the kinds of events of a timeline, and makes its lanes."""

    def __init__(self, run: Run, begin: int) -> None:
        self._run, self._begin = run, begin
        self.numbers: dict[TimelineEvent, int] = {}

    def host_lane(self, host: HostTimeline, end: int) -> TimelineLane:
        """Show what the stepping thread did; times of which nothing was recorded stay empty."""
        rows = _rows(host.segments, self._begin, end)
        return self._lane("host", host.segments, rows, (self._host_event(host, row) for row in rows))

    def device_lane(self, name: str, segments: Segments, end: int) -> TimelineLane:
        """Return what one stream of the device did."""
        rows = _rows(segments, self._begin, end)
        return self._lane(name, segments, rows, self._activities(segments, rows))

    def whole_lanes(
        self, host: HostTimeline, devices: Iterable[tuple[str, Segments]], begin: int, end: int
    ) -> Iterator[TimelineLane]:
        """Yield the lanes of the host and of the device over a whole step, in PARTS parts."""
        step = Intervals(np.array([begin]), np.array([end]))
        yield self._whole_lane("host", host.segments, np.asarray(host.category), HOST_CATEGORIES, step)
        names = tuple(dict.fromkeys(ACTIVITY_CATEGORIES.values()))
        codes = np.zeros(max(ACTIVITY_CATEGORIES) + 1, np.int64)
        codes[list(ACTIVITY_CATEGORIES)] = [names.index(category) for category in ACTIVITY_CATEGORIES.values()]
        for name, segments in devices:
            kinds = self._run.activities["kind"][segments.owner].astype(np.int64)
            yield self._whole_lane(name, segments, codes[kinds], names, step)

    def _whole_lane(
        self, name: str, segments: Segments, category: Times, names: Sequence[str], step: Intervals
    ) -> TimelineLane:
        edges = np.linspace(step.begin[0], step.end[0], PARTS + 1).astype(np.int64)
        cut = overlaps(segments.begin, segments.end, Intervals(edges[:-1], edges[1:]))
        kinds = len(names) + 1  # the last one: nothing is recorded
        cell = cut.right * kinds + category[cut.left]
        ns = np.bincount(cell, cut.end - cut.begin, minlength=PARTS * kinds).reshape(PARTS, kinds)
        length = np.diff(edges)
        ns[:, -1] = length - ns.sum(axis=1)
        # what a part does not show is due in the next ones, so that no category loses its share
        due, shown = np.zeros(kinds), np.zeros(PARTS, np.int64)
        for number in range(PARTS):
            due += ns[number]
            shown[number] = int(due.argmax())
            due[shown[number]] -= length[number]
        first = np.flatnonzero(np.diff(shown, prepend=-1) != 0)
        last = np.append(first[1:], PARTS)
        drawn = shown[first] < len(names)
        events = (
            TimelineEvent(names[kind], "", None, is_device=name != "host") for kind in shown[first][drawn].tolist()
        )
        numbers = tuple(self.numbers.setdefault(event, len(self.numbers)) for event in events)
        begins, ends = (edges[rows[drawn]] - int(step.begin[0]) for rows in (first, last))
        return TimelineLane(name, name != "host", tuple(begins.tolist()), tuple(ends.tolist()), numbers)

    def _lane(self, name: str, segments: Segments, rows: range, events: Iterable[TimelineEvent]) -> TimelineLane:
        """Return the lane of these rows; its last part may end after the timeline, which the figure cuts."""
        numbers = tuple(self.numbers.setdefault(event, len(self.numbers)) for event in events)
        begin = np.maximum(segments.begin[rows.start : rows.stop] - self._begin, 0)
        end = segments.end[rows.start : rows.stop] - self._begin
        return TimelineLane(name, name != "host", tuple(begin.tolist()), tuple(end.tolist()), numbers)

    def _host_event(self, host: HostTimeline, row: int) -> TimelineEvent:
        source, record = int(host.source[row]), int(host.record[row])
        category, site = HOST_CATEGORIES[int(host.category[row])], -1
        if source == REGION:
            name = self._run.names[int(host.regions["name"][record])]
        else:
            call = host.calls[record]
            name, site = self._run.names[int(call["name"])], int(call["site"])
            if source != BLOCKED and int(call["kind"]) in (CallKind.ALLOC, CallKind.FREE):
                category = ALLOCATE
        if host.site is not None and site < 0:
            site = int(host.site[row])
        return TimelineEvent(category, name, self._run.sites[site] if site >= 0 else None)

    def _activities(self, segments: Segments, rows: range) -> Iterator[TimelineEvent]:
        for owner in segments.owner[rows.start : rows.stop].tolist():
            activity = self._run.activities[owner]
            category = ACTIVITY_CATEGORIES[int(activity["kind"])]
            yield TimelineEvent(category, self._run.names[int(activity["name"])], None, is_device=True)


# ---------------------------------------------------------------- flame graphs

MAX_DEPTH: Final = 100
"""Deeper frames are folded into the one at this depth, because functions that read the tree recurse."""
_RECORDING_CALLS: Final = ("tensors", "syncs", "functions", "_syncs", "cuda_syncs")
"""Files of hooks that record calls of one operation, the last three in former versions. Another wrapper, such as
a loader's, may lie around calls too."""
MIN_SHARE: Final = 0.0005
"""A frame with less of the total is folded into its parent: 1/2000 is half a pixel of a wide screen."""


@dataclass(slots=True)
class _Frame:
    weight: int = 0
    position: float = 0.0
    """The sum of the positions of its samples within their steps, times their weights."""
    lines: dict[Site, int] = field(default_factory=dict)
    children: dict[tuple[str, str], _Frame] = field(default_factory=dict)


def flame_graph(stacks: Stacks, window: Window) -> tuple[FlameNode | None, Notice | None]:
    """Return the flame graph in seconds per step, or None and the reason.

    A frame's value is its share of the samples times the mean step time, so the root is the step time and two runs of
    the same steps can be compared. Frames are one function of one file, which is relative to the project or to the
    folder of installed packages, as in another checkout; its line is the one with most samples. Idle
    samples are included: they show where the thread waited. The profiler's wrapper frames are removed, and their time
    counts for their caller.
    """
    run = stacks.run
    if not len(window):
        return None, window.reason
    samples, weight = stacks.weighted_samples(window)
    if not len(samples):
        return None, LEVEL_LIGHT if run.info.level == "light" else Notice("no-stack-samples")
    per_stack = np.bincount(samples["stack"], weight, minlength=len(run.stack_frames)).astype(np.int64)
    row = window.step_rows(samples["begin"])
    positions = np.bincount(samples["stack"], weight * (samples["begin"] - window.begin[row]) / window.wall[row])
    root, operations = _Frame(), _operations(run)
    portable = cache(stacks.portable)
    for number in np.flatnonzero(per_stack).tolist():
        frames = _without_wrappers(stacks, number, operations)
        ns = int(per_stack[number])
        root.weight += ns
        node = root
        for site in map(portable, frames[:MAX_DEPTH]):
            node = node.children.setdefault((site.function, site.file), _Frame())
            node.weight += ns
            node.position += float(positions[number])
            node.lines[site] = node.lines.get(site, 0) + ns
    scale = window.per_step(window.wall_ns) / root.weight
    return FlameNode("all", root.weight * scale, None, _children(root, scale, root.weight * MIN_SHARE)), None


def _operations(run: Run) -> dict[tuple[str, int], str]:
    """Map file and line to the operation (item, to, ...) that hooks recorded there most often."""
    calls = run.calls[(run.calls["site"] >= 0) & (run.calls["kind"] != CallKind.OTHER)]
    if not len(calls):
        return {}
    keys, group = np.unique(times(calls["site"]) * len(run.names) + calls["name"], return_inverse=True)
    count = np.bincount(group, call_counts(calls))
    operations: dict[tuple[str, int], str] = {}
    for row in np.argsort(count, kind="stable").tolist():  # the most frequent comes last and stays
        number, name = divmod(int(keys[row]), len(run.names))
        site = run.sites[number]
        operations[site.file, site.line] = run.names[name]
    return operations


def _without_wrappers(stacks: Stacks, number: int, operations: Mapping[tuple[str, int], str]) -> tuple[Site, ...]:
    """Return the frames without our wrappers; where one was the innermost, the call that it recorded stands in its
    place."""
    frames = stacks.run.stack_frames[number]
    remaining = tuple(site for site in frames if code_owner(site.file, stacks.folders) != OURS)
    if not remaining or remaining[-1] is frames[-1] or PurePath(frames[-1].file).stem not in _RECORDING_CALLS:
        return remaining
    file, line = remaining[-1].file, remaining[-1].line
    name = operations.get((file, line))
    return (*remaining, Site(file, line, name)) if name else remaining


def _children(node: _Frame, scale: float, min_weight: float) -> tuple[FlameNode, ...]:
    """Return the children of a node, the largest first."""
    ordered = sorted(node.children.items(), key=lambda item: (-item[1].weight, item[0]))
    return tuple(
        FlameNode(
            function or file,
            child.weight * scale,
            max(child.lines, key=lambda site: (child.lines[site], -site.line)),
            _children(child, scale, min_weight),
            child.position / child.weight,
        )
        for (function, file), child in ordered
        if child.weight >= min_weight
    )


def flame_difference(before: FlameNode, after: FlameNode) -> FlameDiff:
    """Return the union of both trees: a frame that one of them lacks counts 0 there.

    Frames are the same where name and file are the same along the path; lines may differ between versions. The roots
    are taken as the same whatever their names. Children come with the largest of either side first.
    """
    return FlameDiff(before.name, before.value, after.value, after.site or before.site, _pairs(before, after))


def _pairs(before: FlameNode | None, after: FlameNode | None) -> tuple[FlameDiff, ...]:
    sides = [
        {(child.name, child.site and child.site.file): child for child in (node.children if node else ())}
        for node in (before, after)
    ]
    pairs = []
    for key in sides[0] | sides[1]:
        old, new = (side.get(key) for side in sides)
        either = new or old
        assert either is not None
        old_s, new_s = (node.value if node else 0.0 for node in (old, new))
        pairs.append(FlameDiff(either.name, old_s, new_s, either.site, _pairs(old, new)))
    return tuple(sorted(pairs, key=lambda node: (-max(node.before, node.after), node.name)))
