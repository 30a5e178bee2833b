"""The timeline of a report: both sides on one scale, as long as a typical step of the faster one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.device import Timeline, TimelineEvent, TimelineLane
from profiler.analyse.model.measures import Measure
from profiler.core.errors import Notice
from profiler.report.model import ReportSide
from profiler.report.text import kernel_name
from profiler.report.timeline import FIRST_EVENTS, timeline_chart
from profiler.run.model import RunInfo, Site

EVENTS = (
    TimelineEvent("launch", "cudaLaunchKernel", Site("train.py", 7, "forward")),
    TimelineEvent("sync", "item", Site("train.py", 9, "log")),
    TimelineEvent("compute", "void gemm<float, 128>(int)", None, is_device=True),
)


def recorded(step: float, *, parts: int = 10, offset: float = 0.0, streams: int = 1, length: float = 1.0) -> Timeline:
    """A timeline of `length` seconds: launches, then a wait, in each step; the device computes while the host waits."""
    every = int(1e9 * step / parts)
    count = int(1e9 * length) // every
    begin = tuple(range(0, count * every, every))
    lanes = [TimelineLane("host", False, begin, tuple(at + every // 2 for at in begin), (0, 1) * (count // 2))]
    device = TimelineLane("device", True, begin, tuple(at + every // 4 for at in begin), (2,) * count)
    lanes += [replace(device, name=f"stream {number}") for number in range(streams)] if streams > 1 else [device]
    return Timeline(tuple(lanes), EVENTS, length, 3, step, offset, tokens=400, parts=parts)


def side(label: str, timeline: Timeline | None) -> ReportSide:
    analysis = Analysis(RunInfo(0, "", "", ()), {}, {}, {}, timeline=timeline)
    return ReportSide(label, "s1", {}, (analysis,), analysis)


def test_both_sides_show_as_much_time_as_a_step_of_the_faster_side() -> None:
    chart = timeline_chart([side("before", recorded(0.08)), side("after", recorded(0.004))])
    assert chart is not None
    assert chart.length == 4_000_000
    assert [group.label for group in chart.groups] == ["before", "after"]
    for group in chart.groups:
        for track in group.tracks:
            assert max(track.end, default=0) <= chart.length
    assert [group.note for group in chart.groups] == ["40 tokens", "400 tokens"]


def test_a_kind_has_its_call_its_line_and_its_function() -> None:
    chart = timeline_chart([side("run", recorded(0.01))])
    assert chart is not None
    assert [kind.text for kind in chart.kinds] == [
        "cudaLaunchKernel at train.py:7 (forward)",
        "item at train.py:9 (log)",
        "gemm<float, 128>",
    ]
    assert [label for label, _ in chart.legend] == [
        "sync",
        "launch",
        "device compute",
        "device idle",
        "unknown",
    ]


def test_of_a_step_with_many_events_the_first_ones_are_shown() -> None:
    chart = timeline_chart([side("run", recorded(2.0, parts=20_000, length=0.5, offset=1.0))])
    assert chart is not None
    assert len(chart.groups[0].tracks[0].begin) == FIRST_EVENTS
    assert chart.length == FIRST_EVENTS * 100_000


def test_a_stream_is_idle_where_there_are_several() -> None:
    chart = timeline_chart([side("run", recorded(0.01, streams=2))])
    assert chart is not None
    assert [track.idle.label for track in chart.groups[0].tracks] == ["unknown", "stream idle", "stream idle"]


def test_the_note_tells_how_much_the_device_works_as_all_other_parts_of_the_report_do() -> None:
    """The stretch that is drawn has 25%."""
    busy = {"device_utilization": Measure("device_utilization", 0.41, "1")}
    chart = timeline_chart([replace(side("run", recorded(0.01)), measures=busy)])
    assert chart is not None
    assert chart.note == (
        "Step 3, of about median length; over all steps the device works 41% of the time, and 25% of this stretch."
    )


@pytest.mark.parametrize("timeline", [None, Timeline(reason=Notice("no-queue"))])
def test_without_activities_of_a_device_there_is_no_timeline(timeline: Timeline | None) -> None:
    assert timeline_chart([side("run", timeline)]) is None


def test_a_side_without_a_timeline_is_left_out() -> None:
    chart = timeline_chart([side("before", None), side("after", recorded(0.004))])
    assert chart is not None
    assert [group.label for group in chart.groups] == ["after"]


@pytest.mark.parametrize(
    ("slowdowns", "text"),
    [
        ((1.65, 1.02), "Recording slows before 1.65×."),
        ((1.65, 1.2), "Recording slows before 1.65× and after 1.20×."),
        ((0.8, 1.02), "No slowdown by recording was measured."),
    ],
)
def test_the_note_tells_which_sides_recording_slows(slowdowns: tuple[float, float], text: str) -> None:
    sides = [
        replace(side(label, recorded(0.004)), slowdown=Measure("recording_slowdown", value, "x"))
        for label, value in zip(("before", "after"), slowdowns, strict=True)
    ]
    chart = timeline_chart(sides)
    assert chart is not None
    one_step = "step 3, of about median length"
    assert chart.note == f"before: {one_step}. after: {one_step}. {text}"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::vectorized_elementwise_kernel<4>(int, float*)", "vectorized_elementwise_kernel<4>"),
        ("(anonymous namespace)::gemm(int)", "gemm"),
        ("volta_sgemm_128x64_nn", "volta_sgemm_128x64_nn"),
    ],
)
def test_the_name_of_a_kernel_is_shown_without_its_arguments(name: str, short: str) -> None:
    assert kernel_name(name) == short
