"""The ledger of host time, on timelines small enough to add up by hand (ns)."""

from __future__ import annotations

import random

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model import HOST_CATEGORIES
from profiler.analyse.sampling.attribute import host_time
from profiler.analyse.sampling.stacks import Stacks
from profiler.analyse.timing.breakdown import recorded_ledger
from profiler.analyse.timing.host_timeline import CALL_CATEGORIES, CODE, host_timeline, region_category
from profiler.analyse.window import measured_window
from profiler.core.notice import Notice
from profiler.report.text import describe
from profiler.run.model import Run
from profiler.run.tables import CallKind
from tests.fakes.seeds import for_each_seed
from tests.fakes.sentences import warnings
from tests.recorded.builders import MAIN, RunBuilder, timeline


def ns_of(run: Run) -> list[dict[str, int]]:
    """Categories of each step, without evidence from samples; zeros left out."""
    window = measured_window(run)
    rows = recorded_ledger(host_timeline(run, window), window).ns
    assert (rows.sum(axis=1) == window.wall).all()
    return [{name: int(row[CODE[name]]) for name in HOST_CATEGORIES if row[CODE[name]]} for row in rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            # the d2h call copies for 50 and then blocks until its end; all of a sync call is sync
            "step 0 1000; token_loop 100 900; tokenize 150 250 depth=1; launch 300 340; h2d 400 450; d2h 500 700 150; "
            "sync 720 780 30; alloc 950 960",
            [
                {
                    "input": 100,
                    "sync": 150 + 60,
                    "copy": 50 + 50,
                    "launch": 40 + 10,
                    "python": 800 - 100 - 40 - 50 - 200 - 60,
                    "unattributed": 100 + 90,
                }
            ],
            id="the innermost counts, and blocked parts are sync",
        ),
        pytest.param(
            "step 100 200; step 300 400; forward 50 350; sync 190 310 120",
            [{"sync": 10, "python": 90}, {"sync": 10, "python": 40, "unattributed": 50}],
            id="regions and calls are cut at the ends of steps, and gaps between steps do not count",
        ),
        pytest.param(
            "step 0 10; forward 0 10 depth=3; launch 0 10", [{"launch": 10}], id="a call as long as a region is in it"
        ),
        pytest.param(
            "step 0 100; d2h 50 60 1000", [{"sync": 10, "unattributed": 90}], id="no call blocks longer than it takes"
        ),
    ],
)
def test_host_time_by_category(text: str, expected: list[dict[str, int]]) -> None:
    assert ns_of(timeline(text, device="host")) == expected


def test_other_threads_and_warm_up_do_not_count() -> None:
    builder = RunBuilder()
    builder.step(0, 100, warmup=True)
    builder.step(100, 200)
    builder.step(100, 130, tid=777)
    builder.step(200, 300)
    for tid, pid in ((777, 100), (101, 999)):
        builder.call(CallKind.SYNC, 100, 300, tid=tid, pid=pid)
    builder.region("data", 100, 300, tid=777)
    builder.region("log", 0, 150)
    run = builder.build()
    assert ns_of(run) == [{"log": 50, "unattributed": 50}, {"unattributed": 100}]
    assert any("1 measured steps were ended by other threads" in note for note in warnings(analyse(run)))


def test_a_child_that_crosses_its_parents_end_is_cut_and_counted() -> None:
    run = timeline("step 0 100; tokenize 10 50; log 40 70")
    assert ns_of(run) == [{"input": 30, "log": 10, "unattributed": 60}]
    assert any(note.startswith("1 regions or calls ended later than") for note in warnings(analyse(run)))


def test_every_kind_of_call_and_the_named_regions_have_a_category() -> None:
    assert set(CALL_CATEGORIES) == set(CallKind)
    names = ("Tokenize", "data", "logging", "save", " h2d ", "sync", "forward", "input_gate")
    expected = ["input", "input", "log", "checkpoint", "copy", "sync", "python", "python"]
    assert [region_category(name) for name in names] == expected


@for_each_seed(60)
def test_sums_are_exact_on_random_timelines(seed: int) -> None:
    rng = random.Random(seed)
    builder = RunBuilder()
    edge = 0
    for _ in range(rng.randrange(1, 6)):
        begin = edge + rng.choice([0, 0, rng.randrange(20)])
        edge = begin + rng.randrange(1, 60)
        builder.step(begin, edge)
    for _ in range(rng.randrange(12)):
        low, high = sorted(rng.choices(range(-10, edge + 10), k=2))
        builder.region(rng.choice(["tokenize", "log", "x"]), low, high, depth=rng.randrange(3))
        low, high = sorted(rng.choices(range(-10, edge + 10), k=2))
        builder.call(rng.choice(list(CallKind)), low, high, blocked=rng.randrange(30))
    for _ in range(60):
        low = rng.randrange(edge)
        builder.stack(MAIN, low, low + 5, active=rng.randrange(2))
    run = builder.build()
    ns_of(run)
    window = measured_window(run)
    _, book, _ = host_time(Stacks(run), window)
    assert (book.ns.sum(axis=1) == window.wall).all(), book.ns
    assert (book.ns >= 0).all()


def evidence_run(active: int, idle: int, *, sync: int = 0, region: int = 0, samples: bool = True) -> Run:
    """1000 ns in two steps, of which `sync` blocked and `region` in a region; samples of 1 ns each."""
    builder = RunBuilder()
    builder.step(0, 400)
    builder.step(400, 1000)
    builder.call(CallKind.SYNC, 0, sync, blocked=sync)
    builder.region("forward", sync, sync + region)
    for number in range((active + idle) if samples else 0):
        builder.stack(MAIN, number, number + 1, active=1 if number < active else 0)
    return builder.build()


@pytest.mark.parametrize(
    ("run", "python", "unattributed"),
    [
        # always seen active: all that is uncovered is Python
        (evidence_run(100, 0), 1000, 0),
        # active for 75%: of 1000 uncovered, 750 are Python
        (evidence_run(75, 25), 750, 250),
        # idle for 25%, which the sync of 250 explains: the uncovered 750 are Python
        (evidence_run(75, 25, sync=250), 750, 0),
        # idle for half, of which the sync explains 250: 250 of the uncovered 750 were idle
        (evidence_run(50, 50, sync=250), 500, 250),
        # active for 50%: the region explains 400 of these 500, which leaves 100 of the uncovered 600
        (evidence_run(50, 50, region=400), 400 + 100, 500),
        # never active although a region covers 400: nothing is left that could be Python
        (evidence_run(0, 100, region=400), 400, 600),
        # too few samples, and none: nothing is moved
        (evidence_run(49, 0), 0, 1000),
        (evidence_run(0, 0, samples=False), 0, 1000),
    ],
)
def test_evidence_of_python(run: Run, python: int, unattributed: int) -> None:
    parts = analyse(run).breakdown
    got = {name: round((parts[name].value or 0) * 2e9) for name in ("python", "unattributed")}
    assert got == {"python": python, "unattributed": unattributed}


def test_evidence_has_an_interval_and_lack_of_it_a_note() -> None:
    python = analyse(evidence_run(75, 25)).breakdown["python"]
    assert python.low is not None
    half = 1.96 * (0.75 * 0.25 / 100) ** 0.5 * 500e-9  # binomial, of half a step's 1000 ns
    assert python.high - (python.value or 0) == pytest.approx(half)
    assert any("49 stack samples" in note for note in warnings(analyse(evidence_run(49, 0))))


def test_the_threads_clock_says_how_active_it_was_where_samples_cannot() -> None:
    builder = RunBuilder()
    builder.step(0, 1000, thread_cpu=600)
    builder.region("forward", 0, 500)
    for number in range(100):
        builder.stack(MAIN, number, number + 1, active=-1)
    parts = analyse(builder.build()).breakdown
    assert [round((parts[name].value or 0) * 1e9) for name in ("python", "unattributed")] == [500 + 100, 400]
    assert parts["python"].low is None


@pytest.mark.parametrize(("device", "calls", "python"), [("cuda", 0, 0), ("cuda", 1, 999), ("cpu", 0, 1000)])
def test_on_cuda_a_spin_in_an_unrecorded_wait_is_not_taken_for_python(device: str, calls: int, python: int) -> None:
    builder = RunBuilder(device=device)
    builder.step(0, 1000)
    for number in range(100):
        builder.stack(MAIN, number, number + 1)
    for _ in range(calls):
        builder.call(CallKind.LAUNCH, 0, 1)
    analysis = analyse(builder.build())
    assert round((analysis.breakdown["python"].value or 0) * 1e9) == python
    said = "either Python or a wait inside CUDA, and device calls are not recorded in this run"
    assert any(said in note for note in warnings(analysis)) is (python == 0), warnings(analysis)


def test_little_uncovered_time_stays_unattributed() -> None:
    builder = RunBuilder()
    builder.step(0, 1000)
    builder.region("forward", 1, 1000)
    for number in range(100):
        builder.stack(MAIN, number, number + 1)
    assert round((analyse(builder.build()).breakdown["unattributed"].value or 0) * 1e9) == 1


def test_measures_sum_to_the_step_time_and_say_what_is_missing() -> None:
    builder = RunBuilder()
    builder.steps(7, 1003)
    builder.region("tokenize", 10, 5000)
    builder.call(CallKind.LAUNCH, 20, 333)
    analysis = analyse(builder.build())
    total = sum(measure.value or 0 for measure in analysis.breakdown.values())
    assert total == pytest.approx(analysis.measures["step_time"].value, rel=1e-12)
    missing = {name: m.reason for name, m in analysis.breakdown.items() if m.value is None}
    assert set(missing) == {"framework", "compute"}
    assert all(reason == Notice("no-operators") for reason in missing.values())
    assert analysis.breakdown["checkpoint"].value == 0


def test_without_calls_what_calls_would_show_is_not_zero_but_missing() -> None:
    builder = RunBuilder()
    builder.steps(2, 1000)
    builder.region("h2d", 0, 10)
    parts = analyse(builder.build()).breakdown
    assert parts["copy"].value == pytest.approx(5e-9)
    assert {name for name, m in parts.items() if m.value is None} == {"sync", "launch", "framework", "compute"}


def test_level_light_sees_no_category() -> None:
    builder = RunBuilder(level="light")
    builder.steps(3, 1000)
    analysis = analyse(builder.build())
    assert {(m.value, describe(m.reason)) for m in analysis.breakdown.values()} == {
        (None, "recorded at level light: record again with --level standard")
    }
    assert list(analysis.breakdown) == list(HOST_CATEGORIES)
