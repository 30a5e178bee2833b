"""The ledger of host time, on timelines small enough to add up by hand (ns)."""

from __future__ import annotations

import random

import numpy as np
import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.model.measures import HOST_CATEGORIES, WAIT_CATEGORIES
from profiler.analyse.sampling.attribute import host_time
from profiler.analyse.sampling.frames import CHECKPOINT, FSYNC
from profiler.analyse.sampling.stacks import NUMBER, Stacks, StackStrata, stratum_times
from profiler.analyse.timing.breakdown import recorded_strip
from profiler.analyse.timing.host_timeline import CALL_CATEGORIES, CODE, host_timeline, region_category
from profiler.analyse.window import measured_window
from profiler.core.errors import Notice
from profiler.run.model import Run
from profiler.run.tables import CallKind
from tests.fakes.seeds import for_each_seed
from tests.recorded.builders import RunBuilder, timeline

MAIN = "train.py:1:main"

USUAL_CATEGORIES = [name for name in HOST_CATEGORIES if name not in WAIT_CATEGORIES]


def ns_of(run: Run) -> list[dict[str, int]]:
    """Categories of each step, without evidence from samples; zeros left out."""
    window = measured_window(run)
    rows = recorded_strip(host_timeline(run, window), window).ns
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
    run = timeline(
        "warm-up 0 100; step 100 200; step 100 130 thread=777; step 200 300; sync 100 300 thread=777;"
        "sync 100 300 pid=999; data 100 300 thread=777; log 0 150"
    )
    assert ns_of(run) == [{"log": 50, "unattributed": 50}, {"unattributed": 100}]


def test_a_child_that_crosses_its_parents_end_is_cut_and_counted() -> None:
    run = timeline("step 0 100; tokenize 10 50; log 40 70")
    assert ns_of(run) == [{"input": 30, "log": 10, "unattributed": 60}]
    assert Notice("overlapping-regions", {"count": 1}) in analyse(run).warnings


def test_a_wait_for_the_disk_within_a_checkpoint_is_part_of_it() -> None:
    run = timeline("step 0 100; checkpoint 10 50; forward 12 45 depth=1; fsync 15 40 depth=2; fsync 60 70")
    assert ns_of(run) == [{"checkpoint": 7 + 25, "python": 8, "waiting": 10, "unattributed": 50}]


def test_samples_of_a_wait_for_the_disk_within_a_checkpoint_are_part_of_it() -> None:
    hooks = "/v/site-packages/profiler/agent/hooks/regions.py"
    saving, syncing = (f"{hooks}:40:{name}.<locals>.call" for name in ("checkpoint", "fsync"))
    builder = RunBuilder()
    builder.step(0, 100)
    builder.region("checkpoint", 10, 50)
    builder.region("fsync", 15, 40, depth=1)
    builder.region("fsync", 60, 70)
    builder.stack((MAIN, saving, syncing), 20, 25)
    builder.stack((MAIN, syncing), 62, 67)
    run = builder.build()
    window = measured_window(run)
    host = host_timeline(run, window)
    exact = stratum_times(run, window, host)
    assert [int(exact[name].sum()) for name in (CHECKPOINT, FSYNC)] == [40, 10]
    strata = StackStrata(Stacks(run), host, exact).strata(run.stacks["stack"], np.array([-1, -1]))
    assert strata.tolist() == [NUMBER[CHECKPOINT], NUMBER[FSYNC]]


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
        builder.stack((MAIN,), low, low + 5, active=rng.randrange(2))
    run = builder.build()
    ns_of(run)
    window = measured_window(run)
    _, book, _ = host_time(Stacks(run), window)
    assert (book.ns.sum(axis=1) == window.wall).all(), book.ns
    assert (book.ns >= 0).all()


def with_samples(text: str, active: int, idle: int = 0, *, state: int = 1, **facts: str) -> Run:
    """The timeline with samples of 1 ns each, the active ones first."""
    samples = [
        f"stack {MAIN} {number} {number + 1} active={state * (number < active)}" for number in range(active + idle)
    ]
    return timeline("; ".join([text, *samples]), **facts)


STEPS = "step 0 400; step 400 1000"


@pytest.mark.parametrize(
    ("run", "python", "unattributed"),
    [
        # always seen active: all that is unrecorded is Python
        (with_samples(STEPS, 100), 1000, 0),
        # active for 75%: of 1000 unrecorded, 750 are Python
        (with_samples(STEPS, 75, 25), 750, 250),
        # idle for 25%, which the sync of 250 explains: the unrecorded 750 are Python
        (with_samples(f"{STEPS}; sync 0 250 250", 75, 25), 750, 0),
        # idle for half, of which the sync explains 250: 250 of the unrecorded 750 were idle
        (with_samples(f"{STEPS}; sync 0 250 250", 50, 50), 500, 250),
        # active for 50%: the region explains 400 of these 500, which leaves 100 of the unrecorded 600
        (with_samples(f"{STEPS}; forward 0 400", 50, 50), 400 + 100, 500),
        # never active although a region covers 400: nothing is left that could be Python
        (with_samples(f"{STEPS}; forward 0 400", 0, 100), 400, 600),
        # too few samples, and none: nothing is moved
        (with_samples(STEPS, 49), 0, 1000),
        (with_samples(STEPS, 0), 0, 1000),
        # the thread's clock says how active it was where samples cannot
        (with_samples("step 0 1000 thread_cpu=600; forward 0 500", 100, state=-1), 500 + 100, 400),
        # without its clock nothing does
        (with_samples("step 0 1000; forward 0 500", 100, state=-1), 500, 500),
        # little unrecorded time stays unattributed
        (with_samples("step 0 1000; forward 1 1000", 100), 999, 1),
    ],
)
def test_samples_prove_python(run: Run, python: int, unattributed: int) -> None:
    parts, steps = analyse(run).breakdown, len(run.steps)
    ns = {name: round((parts[name].value or 0) * steps * 1e9) for name in ("python", "unattributed")}
    assert ns == {"python": python, "unattributed": unattributed}


def test_python_has_an_interval_unless_a_clock_measured_it_and_few_samples_a_warning() -> None:
    python = analyse(with_samples(STEPS, 75, 25)).breakdown["python"]
    half = 1.96 * (0.75 * 0.25 / 100) ** 0.5 * 500e-9  # binomial, of half a step's 1000 ns
    assert (python.low, python.high) == pytest.approx((375e-9 - half, 375e-9 + half))
    assert analyse(with_samples("step 0 1000 thread_cpu=600", 100, state=-1)).breakdown["python"].low is None
    few = Notice("unrecorded-time", {"share": 1.0, "samples": 49, "needed": 50, "of": "calls"})
    assert few in analyse(with_samples(STEPS, 49)).warnings


@pytest.mark.parametrize(
    ("device", "calls", "python"), [("cuda", "", 0), ("cuda", "; launch 0 1", 999), ("cpu", "", 1000)]
)
def test_on_cuda_a_spin_in_an_unrecorded_wait_is_not_taken_for_python(device: str, calls: str, python: int) -> None:
    analysis = analyse(with_samples(f"step 0 1000{calls}", 100, device=device))
    assert round((analysis.breakdown["python"].value or 0) * 1e9) == python
    assert (Notice("python-or-cuda-wait", {"share": 1.0}) in analysis.warnings) is (python == 0)


@pytest.mark.parametrize(
    ("text", "level", "missing"),
    [
        (
            "steps 7 1003; tokenize 10 5000; launch 20 333",
            "standard",
            {"framework": "no-operators", "compute": "no-operators"},
        ),
        (
            "steps 2 1000; copy 0 10",
            "standard",
            {
                "sync": "no-device-calls",
                "launch": "no-device-calls",
                "framework": "no-operators",
                "compute": "no-operators",
            },
        ),
        ("steps 3 1000", "light", dict.fromkeys(USUAL_CATEGORIES, "level-light")),
    ],
)
def test_measures_sum_to_the_step_time_and_say_what_is_missing(text: str, level: str, missing: dict[str, str]) -> None:
    analysis = analyse(timeline(text, level=level))
    assert list(analysis.breakdown) == USUAL_CATEGORIES
    absent = {name: measure.reason.code for name, measure in analysis.breakdown.items() if measure.value is None}
    assert absent == missing
    if level == "standard":
        total = sum(measure.value or 0 for measure in analysis.breakdown.values())
        assert total == pytest.approx(analysis.measures["step_time"].value, rel=1e-12)
