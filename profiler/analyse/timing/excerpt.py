"""Selects what a report draws of a run: the host and the streams of the device in a typical step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from profiler.analyse.intervals import Intervals, Segments, Times, covered_within, innermost, overlaps, times
from profiler.analyse.model.device import Timeline, TimelineEvent, TimelineLane
from profiler.analyse.model.measures import HOST_CATEGORIES
from profiler.analyse.timing.device import ACTIVITY_CATEGORIES, NO_ACTIVITIES, busy_intervals, no_queue_reason
from profiler.analyse.timing.host_timeline import BLOCKED, REGION, HostTimeline
from profiler.analyse.timing.trace_timeline import full_timeline
from profiler.analyse.window import NS_PER_S, Window, device_window, rank_windows
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
    """The number of the stretch in which the device works closest to the share `busy` of the time; else the first."""
    if busy is None:
        return 0
    shares = covered_within(working, begins, ends) / np.maximum(ends - begins, 1)
    return int(np.argmin(np.abs(shares - busy)))


def _rows(segments: Segments, begin: int, end: int) -> range:
    """The rows of the segments that overlap [begin, end)."""
    first = int(np.searchsorted(segments.end, begin, "right"))
    return range(first, int(np.searchsorted(segments.begin, end, "left")))


def _last_end(segments: Segments, begin: int) -> int:
    """Where a lane that begins at `begin` has MAX_EVENTS events."""
    first = int(np.searchsorted(segments.end, begin, "right"))
    last = first + MAX_EVENTS
    return int(segments.begin[last]) if last < len(segments.begin) else np.iinfo(np.int64).max


def _device_segments(run: Run, window: Window) -> list[tuple[str, Segments]]:
    """The streams with a lane, with their names and the pieces of their activities; `owner` is a row of the run's
    activities."""
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
        """What one stream of the device did."""
        rows = _rows(segments, self._begin, end)
        return self._lane(name, segments, rows, self._activities(segments, rows))

    def whole_lanes(
        self, host: HostTimeline, devices: Iterable[tuple[str, Segments]], begin: int, end: int
    ) -> Iterator[TimelineLane]:
        """The lanes of the host and of the device over a whole step, in PARTS parts."""
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
        """The lane of these rows; its last part may end after the timeline, which the figure cuts."""
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
        return TimelineEvent(category, name, self._site(site))

    def _activities(self, segments: Segments, rows: range) -> Iterator[TimelineEvent]:
        for owner in segments.owner[rows.start : rows.stop].tolist():
            activity = self._run.activities[owner]
            category = ACTIVITY_CATEGORIES[int(activity["kind"])]
            yield TimelineEvent(category, self._run.names[int(activity["name"])], None, is_device=True)

    def _site(self, number: int) -> Site | None:
        return self._run.sites[number] if number >= 0 else None
