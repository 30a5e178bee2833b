"""Makes the timeline of a report: the same stretch of time of all sides on one scale, host and device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from profiler.analyse.model.device import Timeline, TimelineEvent
from profiler.analyse.model.measures import DEVICE_CATEGORIES, HOST_CATEGORIES, UNATTRIBUTED
from profiler.core import units
from profiler.report.blocks import TimelineChart, TimelineGroup, TimelineKind, TimelineTrack
from profiler.report.category_text import category_label, category_meaning, category_tone, device_label
from profiler.report.model import ReportInput, ReportSide
from profiler.report.text import at, capitalized, kernel_name, listed, shortened

PARTS: Final = 1_000
"""Parts of a step that is drawn as a whole, as `profiler.analyse.timing.excerpt` makes them; a test holds it equal."""
FIRST_EVENTS: Final = 2_000
"""Events of a lane that are shown of a step that has more than an excerpt holds: two for each pixel of a wide page."""
_HOST_ORDER: Final = ("python", "allocate", *(name for name in HOST_CATEGORIES if name != "python"))
_OF_WORK: Final = TimelineKind(device_label("idle"), "idle", "idle")
_OF_STREAM: Final = TimelineKind("stream idle", "idle", "idle")
_OF_HOST: Final = TimelineKind(category_label(UNATTRIBUTED), "free", category_meaning(UNATTRIBUTED))
_LONGEST_NAME: Final = 60
_LEAST_IN_LEGEND: Final = 0.001
_NEARLY_ALL: Final = 0.99
_ALIKE: Final = 0.03
"""How far the share of a stretch may be from that of all steps without being told."""
_SLOWED: Final = 1.05
"""Slowdown by recording from which it is told: less is within the spread of runs."""


def main_timeline(report_input: ReportInput) -> TimelineChart | None:
    """Return the timeline on the first screen: of a comparison and of a trace, which have one picture of their time.

    The first screen of a recorded run shows one step by its phases instead.
    """
    analysis = report_input.analysis
    return timeline_chart(report_input.sides) if analysis is None or analysis.is_trace else None


def timeline_chart(sides: Sequence[ReportSide]) -> TimelineChart | None:
    """Return the timeline of the sides whose detailed run has one, as long as a typical step of the fastest of them.

    None where no side has a device whose activities were recorded.
    """
    drawn = [(side, side.detailed.timeline) for side in sides]
    timelines = [(side, timeline) for side, timeline in drawn if timeline is not None and timeline.lanes]
    if len(timelines) == 1:  # alone, a step has a scale of its own
        ((side, only),) = timelines
        if only.whole:  # its events are too many to be drawn: all of it, in parts
            timelines = [(side, replace(only, lanes=only.whole, length=only.step_length, offset=0.0))]
    if not timelines:
        return None
    length = _length([timeline for _, timeline in timelines])
    numbers: dict[TimelineKind, int] = {}
    groups = []
    for side, timeline in timelines:
        tracks = tuple(_tracks(timeline, length, numbers))
        label = side.label if len(sides) > 1 else ""
        groups.append(TimelineGroup(label, _work(side, timeline, len(tracks[0].begin)), tracks))
    what = listed([group.label for group in groups if group.label]) or "the host and the device"
    caption = f"{units.seconds(length / 1e9)} of {what}{' on one scale' * (len(groups) > 1)}"
    chart = TimelineChart(caption, length, tuple(groups), tuple(numbers), _note(timelines, length, len(sides) > 1))
    return replace(chart, legend=tuple(_legend(chart)))


def _legend(chart: TimelineChart) -> Iterator[tuple[str, str]]:
    """Yield the categories that take at least a thousandth of some track, those of the host first."""
    seen = {
        (kind.label, kind.tone)
        for group in chart.groups
        for track in group.tracks
        for kind, share in track.shares(chart).items()
        if share >= _LEAST_IN_LEGEND
    }
    order = [(_label(name, False), category_tone(name)) for name in _HOST_ORDER]
    order += [(_label(name, True), category_tone(name)) for name in DEVICE_CATEGORIES]
    order += [(kind.label, kind.tone) for kind in (_OF_WORK, _OF_STREAM, _OF_HOST)]
    yield from (entry for entry in dict.fromkeys(order) if entry in seen)


def _length(timelines: Sequence[Timeline]) -> int:
    """Return the ns of a typical step of the side with the shortest one; of its first events, if it has too many."""
    shortest = min(timelines, key=lambda timeline: timeline.step_length)
    length = shortest.step_length
    if length > shortest.length:
        ends = [lane.begin[FIRST_EVENTS] for lane in shortest.lanes if len(lane.begin) > FIRST_EVENTS]
        length = min([shortest.length, *(end / 1e9 for end in ends)])
    return max(1, round(1e9 * min(length, *(timeline.length for timeline in timelines))))


def _work(side: ReportSide, timeline: Timeline, parts: int) -> str:
    """`28 tokens`: of the typical step's tokens the share that these parts are of the host's calls and regions."""
    if not timeline.tokens or not timeline.parts:
        return ""
    unit = side.measure("tokens_per_s").unit.removesuffix("/s") or "tokens"
    tokens = round(timeline.tokens * parts / timeline.parts)
    return f"{units.count(tokens)} {unit}" if tokens else ""


def _tracks(timeline: Timeline, length: int, numbers: dict[TimelineKind, int]) -> Iterator[TimelineTrack]:
    kinds = [_kind(event) for event in timeline.events]
    streams = sum(lane.is_device for lane in timeline.lanes)
    for lane in timeline.lanes:
        count = sum(begin < length for begin in lane.begin)
        yield TimelineTrack(
            lane.name,
            lane.begin[:count],
            tuple(min(end, length) for end in lane.end[:count]),
            tuple(numbers.setdefault(kinds[event], len(numbers)) for event in lane.event[:count]),
            _OF_HOST if not lane.is_device else _OF_WORK if streams == 1 else _OF_STREAM,
        )


def _label(category: str, is_device: bool) -> str:
    return device_label(category) if is_device else category_label(category)


def _kind(event: TimelineEvent) -> TimelineKind:
    category = event.category
    label = _label(category, event.is_device)
    name = kernel_name(event.name) if event.is_device else event.name.removeprefix("operator ")
    name = shortened(name, _LONGEST_NAME)
    function = f" ({event.site.function})" if event.site and event.site.function else ""
    return TimelineKind(label, category_tone(category), f"{name}{at(event.site)}{function}" or label)


def _note(timelines: Sequence[tuple[ReportSide, Timeline]], length: int, compared: bool) -> str:
    """Tell which stretch of each side it is, how busy its device is, and how much recording slows the programs."""
    texts = [f"{_stretch(timeline, length)}{_works(side, timeline, length)}" for side, timeline in timelines]
    if compared:
        texts = [f"{side.label}: {text}" for (side, _), text in zip(timelines, texts, strict=True)]
    else:
        texts = list(map(capitalized, texts))
    measured = {side.label: side.slowdown.value for side, _ in timelines if side.slowdown and side.slowdown.value}
    slowed = [f"{label} {units.ratio(value)}" for label, value in measured.items() if value >= _SLOWED]
    if slowed:
        texts.append(f"Recording slows {listed(slowed)}")
    elif measured:
        texts.append("No slowdown by recording was measured")
    return "".join(f"{text}. " for text in texts).rstrip()


def _stretch(timeline: Timeline, length: int) -> str:
    """`1.20 ms within step 12, of about median length (353 ms)`"""
    step = f"step {timeline.step:,}, of about median length"
    if timeline.lanes is timeline.whole:
        return f"{step}, in parts of {units.seconds(timeline.step_length / PARTS)} that each show one kind of time"
    if not timeline.offset and length >= _NEARLY_ALL * 1e9 * timeline.step_length:  # the whole step
        return step
    drawn, whole = units.seconds(length / 1e9), units.seconds(timeline.step_length)
    of = f"{step} ({whole})"
    return f"{drawn} within {of}" if timeline.offset else f"the first {drawn} of {of}"


def _works(side: ReportSide, timeline: Timeline, length: int) -> str:
    """`; over all steps the device works 9% of the time, and 5% of this stretch`: the figure that the report has
    everywhere, and that of the stretch where it is another one."""
    busy = side.measure("device_utilization").value
    if busy is None:
        return ""
    text = f"; over all steps the device works {units.share(busy)} of the time"
    lanes = [lane for lane in timeline.lanes if lane.is_device]
    drawn = sum(
        min(end, length) - begin for begin, end in zip(lanes[0].begin, lanes[0].end, strict=True) if begin < length
    )
    if len(lanes) == 1 and abs(drawn / length - busy) > _ALIKE:
        text += f", and {units.share(drawn / length)} of this stretch"
    return text
