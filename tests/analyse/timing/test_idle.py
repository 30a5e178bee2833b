"""Idle time of the device and whom it is charged to, on hand-computed timelines (ns)."""

from __future__ import annotations

import random

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model import Analysis, Topic
from profiler.analyse.timing.categories import CODE
from profiler.analyse.timing.device import idle_ns
from profiler.analyse.timing.host_timeline import host_timeline
from profiler.analyse.timing.idle import idle_pieces
from profiler.analyse.window import measured_window
from profiler.report.text import host_state
from profiler.run.model import Run
from profiler.run.tables import ActivityKind, CallKind
from tests.fakes.seeds import for_each_seed
from tests.recorded.builders import RunBuilder

KERNEL = ActivityKind.KERNEL


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


def check_sum(run: Run) -> None:
    window = measured_window(run)
    pieces = idle_pieces(run, window, host_timeline(run, window), unrecorded=CODE["unattributed"])
    assert int((pieces.end - pieces.begin).sum()) == idle_ns(run, window)


def test_a_gap_that_begins_in_a_sync_is_the_syncs_until_the_next_launch() -> None:
    builder = RunBuilder(device="host")
    builder.step(0, 1000)
    builder.activity(KERNEL, 0, 100)
    builder.call(CallKind.SYNC, 50, 120, blocked=70, site="t.py:88")
    builder.call(CallKind.ALLOC, 200, 210, site="t.py:90")  # puts nothing on the queue
    builder.call(CallKind.LAUNCH, 300, 310, site="t.py:91")
    builder.activity(KERNEL, 330, 1000)
    run = builder.build()
    # 100..300 to the sync, which returns at 120
    # 300..310 in the launch; 310..330 to nobody's call: no later one, so the one before
    assert rows(run) == {
        ("blocked in the sync call", "sync", "t.py:88"): (20, 1),
        ("after the sync", "sync", "t.py:88"): (180, 1),
        ("in the launch call", "launch", "t.py:91"): (10, 1),
        ("outside of any region after the call", "unattributed", "t.py:91"): (20, 1),
    }
    check_sum(run)


def test_the_blocked_part_of_a_copy_is_a_sync_and_regions_after_it_are_named() -> None:
    builder = RunBuilder(device="host")
    builder.step(0, 1000)
    builder.activity(KERNEL, 0, 100)
    builder.call(CallKind.D2H, 10, 150, blocked=100, site="t.py:5")
    builder.region("tokenize", 200, 500)
    builder.region("forward", 500, 600)
    builder.call(CallKind.H2D, 700, 710, site="t.py:9")
    builder.activity(ActivityKind.H2D, 710, 1000)
    run = builder.build()
    assert rows(run) == {
        ("blocked in the d2h call", "sync", "t.py:5"): (50, 1),
        ("after the sync in the d2h call", "sync", "t.py:5"): (550 - 300, 1),
        ("after the sync, in region tokenize", "sync", "t.py:5"): (300, 1),
        ("in the h2d call", "copy", "t.py:9"): (10, 1),
    }
    check_sum(run)


def test_any_other_gap_goes_to_what_the_host_was_doing() -> None:
    builder = RunBuilder(device="host")
    builder.step(0, 1000)
    builder.region("tokenize", 100, 300)
    builder.region("forward", 300, 600)
    builder.call(CallKind.LAUNCH, 400, 450, site="t.py:7")
    builder.call(CallKind.D2H, 500, 600, blocked=60, site="t.py:8")
    builder.activity(KERNEL, 450, 550)
    run = builder.build()
    assert rows(run) == {
        ("outside of any region before the call", "unattributed", "t.py:7"): (100, 1),
        ("in region tokenize", "input", ""): (200, 1),
        ("in region forward before the call", "python", "t.py:7"): (100, 1),
        ("in the launch call", "launch", "t.py:7"): (50, 1),
        # begins at 550 while blocked until 600; no launch follows, so all of it
        ("blocked in the d2h call", "sync", "t.py:8"): (50, 1),
        ("after the sync in the d2h call", "sync", "t.py:8"): (400, 1),
    }
    check_sum(run)


def test_a_gap_that_began_before_a_sync_is_only_the_syncs_while_it_blocks() -> None:
    builder = RunBuilder(device="host")
    builder.step(0, 100)
    builder.activity(KERNEL, 0, 10)
    builder.call(CallKind.SYNC, 20, 60, blocked=40, site="t.py:1")
    builder.activity(KERNEL, 50, 100)
    assert rows(builder.build()) == {
        ("outside of any region before the call", "unattributed", "t.py:1"): (10, 1),
        ("blocked in the sync call", "sync", "t.py:1"): (30, 1),
    }


def test_recording_itself_has_no_line_and_is_no_syncs() -> None:
    builder = RunBuilder(device="host")
    builder.step(0, 1000)
    builder.activity(KERNEL, 0, 100)
    builder.call(CallKind.SYNC, 50, 120, blocked=70, site="t.py:88")
    builder.region("recording", 200, 300)
    builder.call(CallKind.LAUNCH, 400, 410, site="t.py:91")
    builder.region("recording", 900, 1000)
    builder.activity(KERNEL, 410, 900)
    run = builder.build()
    assert rows(run) == {
        ("blocked in the sync call", "sync", "t.py:88"): (20, 1),
        ("after the sync", "sync", "t.py:88"): (180, 1),
        ("recording itself (profiler.marks)", "python", ""): (200, 2),
        ("in the launch call", "launch", "t.py:91"): (10, 1),
    }
    check_sum(run)
    assert analyse(run).breakdown["python"].value == pytest.approx(200e-9), "the breakdown counts it as Python"


def test_a_gap_is_judged_by_its_beginning_also_where_that_lies_before_the_window() -> None:
    builder = RunBuilder(device="host")
    builder.step(0, 100, warmup=True)
    builder.step(100, 200)
    builder.step(250, 300)
    builder.activity(KERNEL, 0, 50)
    builder.call(CallKind.SYNC, 20, 60, blocked=40, site="t.py:1")
    builder.call(CallKind.LAUNCH, 260, 270, site="t.py:2")
    builder.activity(KERNEL, 290, 400)
    run = builder.build()
    assert rows(run) == {
        ("after the sync", "sync", "t.py:1"): (100 + 10, 1),
        ("in the launch call", "launch", "t.py:2"): (10, 1),
        ("outside of any region after the call", "unattributed", "t.py:2"): (20, 1),
    }
    check_sum(run)


def test_gaps_count_once_for_each_line_and_aggregate_over_steps() -> None:
    builder = RunBuilder(device="host")
    for step in range(4):
        begin = step * 100
        builder.step(begin, begin + 100)
        builder.call(CallKind.LAUNCH, begin, begin + 20, site="t.py:2")
        builder.activity(KERNEL, begin + 20, begin + 60)
        builder.call(CallKind.SYNC, begin + 20, begin + 70, blocked=50, site="t.py:3")
    run = builder.build()
    row = {host_state(r): r for r in analyse(run).idle}
    assert row["blocked in the sync call"].seconds_per_step == pytest.approx(10e-9)
    assert row["after the sync"].seconds_per_step == pytest.approx(30e-9)
    assert row["after the sync"].share_of_wall == pytest.approx(0.3)
    assert row["after the sync"].gaps_per_step == row["blocked in the sync call"].gaps_per_step == 1
    assert row["in the launch call"].seconds_per_step == pytest.approx(20e-9)
    check_sum(run)


def test_other_threads_neither_cause_nor_fill_gaps_but_the_whole_process_keeps_the_device_busy() -> None:
    builder = RunBuilder(device="host")
    builder.step(0, 100)
    builder.call(CallKind.SYNC, 0, 100, blocked=100, tid=999, site="other.py:1")
    builder.activity(KERNEL, 0, 40)
    builder.activity(KERNEL, 30, 60, stream=7)
    builder.activity(KERNEL, 60, 100, pid=4242)
    assert rows(builder.build()) == {("outside of any region between calls", "unattributed", ""): (40, 1)}


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
    assert total == pytest.approx(idle_ns(run, window), abs=1e-3)
    idle = analysis.device_breakdown["idle"].value or 0
    assert idle * len(window) * 1e9 == pytest.approx(idle_ns(run, window), abs=1e-3)


def blame_missing(analysis: Analysis) -> str:
    assert analysis.idle == ()
    return next(gap.reason.code for gap in analysis.missing if gap.topic is Topic.IDLE_BLAME)


def test_without_a_queue_there_is_no_idle_time() -> None:
    builder = RunBuilder(device="cpu")
    builder.step(0, 100)
    builder.activity(KERNEL, 0, 50)
    analysis = analyse(builder.build())
    assert blame_missing(analysis) == "no-queue"
    assert {m.value for m in analysis.device_breakdown.values()} == {None}
    assert analysis.measures["device_utilization"].value is None


def test_without_activities_nothing_is_blamed() -> None:
    builder = RunBuilder(device="host")
    builder.step(0, 100)
    assert blame_missing(analyse(builder.build())) == "no-activities"
