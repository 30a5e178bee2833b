"""The stretch of a run that a report draws: a typical step, no more events than a page holds, streams apart."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.analyse import figures
from profiler.analyse.figures import timeline_excerpt
from profiler.analyse.model.device import Timeline, TimelineLane
from profiler.report import timeline as timeline_module
from profiler.run.model import Run
from profiler.run.tables import ActivityKind, CallKind
from tests.recorded.builders import MS, US, RunBuilder, timeline


def parts(drawn: Timeline, lane: TimelineLane) -> list[tuple[int, int, str, str]]:
    """Begin, end, category and name of the parts of a lane."""
    events = [drawn.events[number] for number in lane.event]
    return [(*each, event.category, event.name) for *each, event in zip(lane.begin, lane.end, events, strict=True)]


def dense(calls: int, step: int = 10 * MS) -> Run:
    """Three steps with so many launches of 1 µs each, and as many kernels."""
    builder = RunBuilder(device="cuda")
    builder.steps(3, step, tokens=100)
    begin = np.arange(3 * calls) * (step // calls)
    builder.bulk("calls", len(begin), begin=begin, end=begin + US, kind=int(CallKind.LAUNCH), site=-1)
    builder.bulk("activities", len(begin), begin=begin + US, end=begin + 2 * US, kind=int(ActivityKind.KERNEL))
    builder.name("launch")
    return builder.build()


def test_the_step_nearest_to_the_median_is_drawn_to_the_end_of_the_last_step() -> None:
    text = "step 0 50; step 50 60; step 60 72; step 72 90; kernel 51 58; kernel 62 70; kernel 75 80"
    drawn = timeline_excerpt(timeline(text, device="cuda"))
    assert (drawn.step, drawn.step_length, drawn.offset) == (2, 12e-9, 0.0)
    assert drawn.length == 30e-9
    assert parts(drawn, drawn.lanes[1]) == [(2, 10, "compute", "kernel"), (15, 20, "compute", "kernel")]


def test_calls_have_their_lines_and_a_wait_is_a_part_of_its_own() -> None:
    text = "step 0 100; forward 10 60; alloc 20 30 train.py:7; d2h 40 60 15 train.py:8; kernel 30 50"
    drawn = timeline_excerpt(timeline(text, device="cuda"))
    host = drawn.lanes[0]
    assert parts(drawn, host) == [
        (10, 20, "python", "forward"),
        (20, 30, "allocate", "alloc"),
        (30, 40, "python", "forward"),
        (40, 45, "copy", "d2h"),
        (45, 60, "sync", "d2h"),
    ]
    lines = [event.site.line if event.site else None for event in (drawn.events[number] for number in host.event)]
    assert lines == [None, 7, None, 8, 8]


def test_a_step_with_more_events_than_a_page_holds_begins_within_it() -> None:
    drawn = timeline_excerpt(dense(figures.MAX_EVENTS + 1000, step=70 * MS))
    assert 0 < drawn.offset < 0.07
    assert all(len(lane.begin) <= figures.MAX_EVENTS for lane in drawn.lanes)
    assert len(drawn.lanes[0].begin) == figures.MAX_EVENTS
    assert drawn.parts == figures.MAX_EVENTS + 1000


@pytest.mark.parametrize(("busy", "step"), [(None, 0), (0.8, 2), (0.5, 0), (0.0, 1)])
def test_of_the_steps_of_about_median_length_one_with_the_usual_share_is_drawn(busy: float | None, step: int) -> None:
    """The last step is twice as long, and leaves the device idle."""
    text = "step 0 100; step 100 202; step 202 300; step 300 500; kernel 0 50; kernel 100 120; kernel 202 280"
    assert timeline_excerpt(timeline(text, device="cuda"), busy).step == step


def test_a_stretch_at_the_usual_speed_is_chosen() -> None:
    """One call of the middle of each step takes as long as all others together."""
    calls = figures.MAX_EVENTS + 1000
    builder = RunBuilder(device="cuda")
    builder.steps(3, 140 * MS)
    begin = np.arange(3 * calls) * 10 * US
    begin += (np.arange(3 * calls) + calls // 2) // calls * 70 * MS
    builder.bulk("calls", len(begin), begin=begin, end=begin + US, kind=int(CallKind.LAUNCH), site=-1)
    builder.bulk("activities", len(begin), begin=begin + US, end=begin + 2 * US, kind=int(ActivityKind.KERNEL))
    builder.name("launch")
    first = timeline_excerpt(builder.build(), 0.1).lanes[0].begin[: figures.CALLS]
    assert first[-1] - first[0] == (figures.CALLS - 1) * 10 * US


def test_a_step_with_few_events_begins_at_its_begin() -> None:
    drawn = timeline_excerpt(dense(1000))
    assert (drawn.offset, drawn.parts, drawn.tokens) == (0.0, 1000, 100)
    assert drawn.length > drawn.step_length == 0.01


def test_streams_have_lanes_of_their_own_and_no_part_overlaps_another() -> None:
    builder = RunBuilder(device="cuda")
    builder.step(0, 100)
    builder.activity(ActivityKind.KERNEL, 0, 40, stream=7)
    builder.activity(ActivityKind.KERNEL, 30, 60, stream=7)
    builder.activity(ActivityKind.COMMUNICATION, 20, 80, stream=20)
    for stream in range(30, 40):
        builder.activity(ActivityKind.H2D, 0, 1, stream=stream)
    drawn = timeline_excerpt(builder.build())
    assert [lane.name for lane in drawn.lanes[:3]] == ["host", "stream 7", "stream 20"]
    assert len(drawn.lanes) == 1 + figures.MAX_STREAMS
    assert drawn.events[drawn.lanes[2].event[0]].category == "communication"
    for lane in drawn.lanes:
        assert all(end <= begin for end, begin in zip(lane.end, lane.begin[1:], strict=False))


@pytest.mark.parametrize(
    ("text", "facts", "code"),
    [
        ("step 0 100; forward 0 50", {"device": "cpu"}, "no-queue"),
        ("step 0 100; forward 0 50", {"device": "cuda"}, "no-activities"),
        ("forward 0 50; kernel 0 5", {"device": "cuda"}, "no-step"),
    ],
)
def test_without_a_device_or_a_step_there_is_a_reason(text: str, facts: dict[str, str], code: str) -> None:
    drawn = timeline_excerpt(timeline(text, **facts))
    assert drawn.lanes == ()
    assert drawn.reason is not None
    assert drawn.reason.code == code


def test_a_step_with_more_events_than_a_page_holds_is_also_drawn_as_a_whole() -> None:
    """Law 8: however a step's work is spread, the picture of all of it has the shares of the step."""
    builder = RunBuilder(device="cuda")
    for number in range(3):
        begin = number * 100 * MS
        builder.region("data", begin, begin + 57 * MS)
        for call in range(2 * figures.MAX_EVENTS):
            at = begin + 57 * MS + call * 5 * US
            builder.call(CallKind.LAUNCH, at, at + 1 * US)
            builder.activity(ActivityKind.KERNEL, at + 1 * US, at + 2 * US)
        builder.step(begin, begin + 100 * MS)
    drawn = timeline_excerpt(builder.build())
    assert shares(drawn, drawn.whole[0]) == {
        "input": pytest.approx(0.57, abs=0.002),
        "launch": pytest.approx(0.08, abs=0.002),
    }
    assert shares(drawn, drawn.whole[1]) == {"compute": pytest.approx(0.08, abs=0.002)}
    assert len(drawn.whole[0].begin) <= figures.PARTS
    assert timeline_module.PARTS == figures.PARTS


def shares(drawn: Timeline, lane: TimelineLane) -> dict[str, float]:
    """The share of the step that each category has in a lane."""
    found: dict[str, float] = {}
    for begin, end, event in zip(lane.begin, lane.end, lane.event, strict=True):
        name = drawn.events[event].category
        found[name] = found.get(name, 0.0) + (end - begin) / 1e9 / drawn.step_length
    return found
