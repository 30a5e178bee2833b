"""Idle time of the device and whom it is charged to, on hand-computed timelines (ns)."""

from __future__ import annotations

import random

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.intervals import intersect
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.measures import Topic
from profiler.analyse.timing.breakdown import busy_intervals
from profiler.analyse.timing.host_timeline import CODE, host_timeline
from profiler.analyse.timing.idle import idle_pieces, split_off_core
from profiler.analyse.window import measured_window
from profiler.report.text import host_state
from profiler.run.model import Run
from profiler.run.tables import ActivityKind, CallKind
from tests.fakes.seeds import for_each_seed
from tests.recorded.builders import RunBuilder, timeline


def rows(run: Run) -> dict[tuple[str, str, str], tuple[int, int]]:
    """(doing, category, file:line) -> (ns, gaps) over the whole run."""
    analysis, steps = analyse(run), len(measured_window(run))
    return {
        (host_state(row), row.category, f"{row.site.file}:{row.site.line}" if row.site else ""): (
            round(row.seconds_per_step * steps * 1e9),
            round(row.gaps_per_step * steps),
        )
        for row in analysis.idle
    }


def idle_ns(run: Run) -> int:
    """ns of the measured time in which no activity ran."""
    window = measured_window(run)
    return window.wall_ns - intersect(busy_intervals(run, window), window.spans).measure()


def check_sum(run: Run) -> None:
    window = measured_window(run)
    pieces = idle_pieces(run, window, host_timeline(run, window), unrecorded=CODE["unattributed"])
    assert int((pieces.end - pieces.begin).sum()) == idle_ns(run)


RECORDING = (
    "step 0 1000; kernel 0 100; sync 50 120 70 t.py:88; recording 200 300; launch 400 410 t.py:91; recording 900 1000; "
    "kernel 410 900"
)
CASES = {
    # 100..300 belongs to the sync, which returns at 120; 310..330 to no call: the one before it is named
    "a gap that begins in a sync is the sync's until the next launch": (
        (
            "step 0 1000; kernel 0 100; sync 50 120 70 t.py:88; alloc 200 210 t.py:90; launch 300 310 t.py:91; "
            "kernel 330 1000"
        ),
        {
            ("blocked in the sync call", "sync", "t.py:88"): (20, 1),
            ("after the sync", "sync", "t.py:88"): (180, 1),
            ("in the launch call", "launch", "t.py:91"): (10, 1),
            ("after the call", "unattributed", "t.py:91"): (20, 1),
        },
    ),
    "the blocked part of a copy is a sync, and regions after it are named": (
        (
            "step 0 1000; kernel 0 100; d2h 10 150 100 t.py:5; tokenize 200 500; forward 500 600; h2d 700 710 t.py:9; "
            "upload 710 1000"
        ),
        {
            ("blocked in the d2h call", "sync", "t.py:5"): (50, 1),
            ("after the sync in the d2h call", "sync", "t.py:5"): (550 - 300, 1),
            ("after the sync, in region tokenize", "sync", "t.py:5"): (300, 1),
            ("in the h2d call", "copy", "t.py:9"): (10, 1),
        },
    ),
    # the last gap begins at 550 within a call that blocks until 600; no launch follows, so all of it is the sync's
    "any other gap belongs to what the host was doing": (
        "step 0 1000; tokenize 100 300; forward 300 600; launch 400 450 t.py:7; d2h 500 600 60 t.py:8; kernel 450 550",
        {
            ("before the call", "unattributed", "t.py:7"): (100, 1),
            ("in region tokenize", "input", ""): (200, 1),
            ("in region forward before the call", "python", "t.py:7"): (100, 1),
            ("in the launch call", "launch", "t.py:7"): (50, 1),
            ("blocked in the d2h call", "sync", "t.py:8"): (50, 1),
            ("after the sync in the d2h call", "sync", "t.py:8"): (400, 1),
        },
    ),
    "a gap that began before a sync is the sync's only while it blocks": (
        "step 0 100; kernel 0 10; sync 20 60 40 t.py:1; kernel 50 100",
        {
            ("before the call", "unattributed", "t.py:1"): (10, 1),
            ("blocked in the sync call", "sync", "t.py:1"): (30, 1),
        },
    ),
    "recording itself has no line and is no sync's": (
        RECORDING,
        {
            ("blocked in the sync call", "sync", "t.py:88"): (20, 1),
            ("after the sync", "sync", "t.py:88"): (180, 1),
            ("in the profiler's own recording", "python", ""): (200, 2),
            ("in the launch call", "launch", "t.py:91"): (10, 1),
        },
    ),
    "a gap is judged by its beginning, also before the window": (
        (
            "warm-up 0 100; step 100 200; step 250 300; kernel 0 50; sync 20 60 40 t.py:1; launch 260 270 t.py:2; "
            "kernel 290 400"
        ),
        {
            ("after the sync", "sync", "t.py:1"): (100 + 10, 1),
            ("in the launch call", "launch", "t.py:2"): (10, 1),
            ("after the call", "unattributed", "t.py:2"): (20, 1),
        },
    ),
    "other threads neither cause nor fill gaps, but the whole process keeps the device busy": (
        "step 0 100; sync 0 100 100 other.py:1 thread=999; kernel 0 40; kernel 30 60 stream=7; kernel 60 100 pid=4242",
        {("between recorded calls", "unattributed", ""): (40, 1)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_idle_time_is_blamed(name: str) -> None:
    text, expected = CASES[name]
    run = timeline(text, device="host")
    assert rows(run) == expected
    check_sum(run)


def test_the_breakdown_counts_recording_as_python() -> None:
    assert analyse(timeline(RECORDING, device="host")).breakdown["python"].value == pytest.approx(200e-9)


def test_gaps_count_once_for_each_line_and_aggregate_over_steps() -> None:
    step = "launch {0} {1} t.py:2; kernel {1} {3}; sync {1} {4} {2} t.py:3"
    steps = (step.format(at, at + 20, 50, at + 60, at + 70) for at in range(0, 400, 100))
    run = timeline("; ".join(["steps 4 100", *steps]), device="host")
    row = {host_state(row): (row.seconds_per_step, row.share_of_wall, row.gaps_per_step) for row in analyse(run).idle}
    assert row["blocked in the sync call"] == pytest.approx((10e-9, 0.1, 1))
    assert row["after the sync"] == pytest.approx((30e-9, 0.3, 1))
    assert row["in the launch call"] == pytest.approx((20e-9, 0.2, 1))
    check_sum(run)


@for_each_seed(80)
def test_blame_sums_to_the_idle_time_on_random_timelines(seed: int) -> None:
    rng = random.Random(seed)
    builder = RunBuilder(device="host")
    edge = 0
    for _ in range(rng.randrange(1, 5)):
        begin = edge + rng.choice([0, rng.randrange(15)])
        edge = begin + rng.randrange(1, 50)
        builder.step(begin, edge, warmup=rng.random() < 0.2)
    builder.step(edge, edge + 20)
    for _ in range(rng.randrange(1, 8)):
        low, high = sorted(rng.choices(range(-5, edge + 25), k=2))
        builder.activity(rng.choice(list(ActivityKind)), low, high + 1)
    for _ in range(rng.randrange(10)):
        low, high = sorted(rng.choices(range(-5, edge + 25), k=2))
        site = rng.choice([None, "a.py:1", "b.py:2"])
        builder.call(rng.choice(list(CallKind)), low, high, blocked=rng.randrange(20), site=site)
        low, high = sorted(rng.choices(range(-5, edge + 25), k=2))
        builder.region(rng.choice(["tokenize", "x"]), low, high)
    run = builder.build()
    check_sum(run)
    analysis, window = analyse(run), measured_window(run)
    total = sum(row.seconds_per_step for row in analysis.idle) * len(window) * 1e9
    assert total == pytest.approx(idle_ns(run), abs=1e-3)
    idle = analysis.device_breakdown["idle"].value or 0
    assert idle * len(window) * 1e9 == pytest.approx(idle_ns(run), abs=1e-3)


def blame_missing(analysis: Analysis) -> str:
    assert analysis.idle == ()
    return next(gap.reason.code for gap in analysis.missing if gap.topic is Topic.IDLE_BLAME)


def test_without_a_queue_there_is_no_idle_time() -> None:
    analysis = analyse(timeline("step 0 100; kernel 0 50", device="cpu"))
    assert blame_missing(analysis) == "no-queue"
    assert {m.value for m in analysis.device_breakdown.values()} == {None}
    assert analysis.measures["device_utilization"].value is None


def test_without_activities_nothing_is_blamed() -> None:
    assert blame_missing(analyse(timeline("step 0 100", device="host"))) == "no-activities"


STALLED = (
    "step 0 1000; kernel 0 100; sync 50 620 570 t.py:88; launch 700 710 t.py:91; kernel 710 1000; "
    "counter waits_delayed_ns 100"
)


def test_waits_for_a_device_without_a_core_are_not_charged_to_the_sync() -> None:
    """The host waited 570 ns, of which the device was idle 520 ns; in 400 ns of these it was a thread without a core.
    So it had none in 365 ns of the idle time."""
    run = timeline(f"{STALLED}; counter waits_stalled_ns 400")
    assert rows(run) == {
        ("blocked in the sync call", "sync", "t.py:88"): (155, 1),
        ("after the sync", "sync", "t.py:88"): (80, 1),
        ("in the launch call", "launch", "t.py:91"): (10, 1),
        ("without a core to run on", "core", ""): (365, 0),
    }
    breakdown = analyse(run).breakdown
    assert [round(breakdown[name].value * 1e9) for name in ("sync", "core")] == [170, 400]


def test_time_without_a_core_is_taken_out_of_all_parts_alike() -> None:
    before = analyse(timeline(STALLED)).idle
    after = split_off_core(before, delayed=0.25, stalled=None)
    assert [row.category for row in after] == ["sync", "sync", "launch", "core"]
    assert [row.share_of_wall for row in after] == pytest.approx([0.39, 0.06, 0.0075, 0.1525])
    assert split_off_core(before, delayed=0.001, stalled=None) == before, "too little to be a row of its own"
    counted = split_off_core(before, delayed=0.24, stalled=0.26)
    assert [row.share_of_wall for row in counted if row.category != "core"] == pytest.approx([0.26, 0.04, 0.005])
