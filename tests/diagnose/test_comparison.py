"""Diagnoses of comparisons: how much faster a side is, and what explains it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.comparison import SideRuns, compare
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import Mismatch
from profiler.core.errors import Notice
from profiler.diagnose.comparison import diagnose_comparison
from profiler.diagnose.model import CounterChange, SideDiagnosis, TimeChange, TimeChangeKind, WorkerMove
from tests.diagnose.runs import fast, idle_in_region, sides, slow
from tests.recorded.builders import MS, RunBuilder


def diagnosed(*made: SideRuns) -> SideDiagnosis:
    (diagnosis,) = diagnose_comparison(compare(made)).sides
    return diagnosis


@pytest.mark.parametrize(("first", "last", "faster"), [(slow, fast, True), (fast, slow, False)])
def test_a_cause_with_its_line_and_counters(first: Any, last: Any, faster: bool) -> None:
    diagnosis = diagnosed(*sides(first, last))
    assert (diagnosis.speed.value > 1, diagnosis.unit, diagnosis.devices) == (
        faster,
        "tokens/s",
        ("host device (CPU)",),
    )
    change = diagnosis.change
    assert (change.kind, change.name, change.faster, diagnosis.explained) == (TimeChangeKind.IDLE, "sync", faster, True)
    shares = (round(change.before, 2), round(change.after, 2))
    assert (shares, change.as_shares) == ((0.6, 0.1) if faster else (0.1, 0.6), True)
    assert (change.site.file, change.site.line) == ("src/train.py", 88)
    assert diagnosis.counters == (CounterChange("syncs", *((50, 1) if faster else (1, 50))),)


def reading(count: int, length: int, points: int) -> SideRuns:
    builder = RunBuilder(device="cpu", unit="points", level="light")
    for step in range(4):
        builder.step(step * length, (step + 1) * length, tokens=points)
        builder.counter("might_sync", count, step=step)
    return SideRuns(f"reads {count}", "", (analyse(builder.build()),) * 2, None)


def test_counters_are_compared_between_steps_of_one_size_only() -> None:
    diagnosis = diagnosed(reading(50, 10 * MS, 100), reading(2, MS, 100))
    assert (diagnosis.unit, diagnosis.counters) == ("points/s", (CounterChange("might_sync", 50, 2),))
    larger = compare((reading(50, 10 * MS, 100), reading(2, MS, 500)))
    assert diagnose_comparison(larger).sides[0].counters == ()
    (notice,) = [notice for notice in larger.method if notice.code == "step-sizes"]
    assert notice.values == {"side": "reads 2", "base": "reads 50", "ratio": 5.0, "unit": "points"}
    similar = compare((reading(5, MS, 100), reading(2, MS, 105)))
    assert not [notice for notice in similar.method if notice.code == "step-sizes"]


def test_work_that_moved_to_other_processes_has_no_cause_in_this_one() -> None:
    def with_engine(run: Analysis, engine: str, workers: int) -> Analysis:
        return replace(run, info=replace(run.info, facts={**run.info.facts, "engine": engine, "workers": workers}))

    made = []
    for side, engine, workers in zip(sides(slow, fast), ("inline", "pool"), (1, 2), strict=True):
        light = tuple(with_engine(run, engine, workers) for run in side.light)
        assert side.detail is not None
        made.append(replace(side, light=light, detail=with_engine(side.detail, engine, workers)))
    diagnosis = diagnosed(*made)
    assert (diagnosis.moved, diagnosis.change) == (WorkerMove("pool", 2), None)


def test_the_start_that_programs_state_is_listed() -> None:
    made = []
    for side, starts in zip(sides(slow, fast), ((0.25, 0.5, 0.75), (True, 5.5, 5.7)), strict=True):
        runs = [
            replace(run, info=replace(run.info, facts={**run.info.facts, "start_s": start}))
            for run, start in zip(side.light, starts, strict=True)
        ]
        made.append(replace(side, light=tuple(runs)))
    assert diagnose_comparison(compare(made)).starts == (("as-found", 0.5), ("fixed", 5.6))
    assert diagnose_comparison(compare(sides(slow, fast))).starts == ()


def test_no_difference_has_no_cause() -> None:
    base, _ = sides(slow, slow)
    diagnosis = diagnosed(base, SideRuns("again", "", tuple(reversed(base.light)), None))
    assert (diagnosis.speed.different, diagnosis.change, diagnosis.counters) == (False, None, ())


def test_one_pair_has_no_interval_and_no_cause() -> None:
    diagnosis = diagnosed(*sides(slow, fast, pairs=1, detail=False))
    assert (diagnosis.speed.reason, diagnosis.explained) == (Notice("one-pair"), False)
    assert diagnosis.busy == (pytest.approx(0.1, abs=0.01), pytest.approx(0.9, abs=0.01))


def passes(
    before: tuple[int, int], after: tuple[int, int], light: tuple[int, int], *, pairs: int = 2, **more: Any
) -> SideDiagnosis:
    """From breakdown passes of (length, idle) and light runs of the lengths `light`, all in ms."""
    made = []
    for number, (length, idle) in enumerate((before, after)):
        runs = tuple(
            idle_in_region(light[number] * MS + pair * (1 + number), 0, level="light") for pair in range(pairs)
        )
        made.append(SideRuns(("a", "b")[number], "", runs, idle_in_region(length * MS, idle * MS, **more)))
    return diagnosed(*made)


def amounts(change: TimeChange | None) -> tuple[float, float] | None:
    return change and (round(change.before, 3), round(change.after, 3))


@pytest.mark.parametrize(
    ("before", "after", "light", "explained", "shown"),
    [
        ((100, 50), (50, 5), (90, 45), True, (0.5, 0.1)),
        ((100, 50), (20, 8), (90, 18), True, (0.5, 0.4)),  # 42 of 80 ms
        ((100, 38), (20, 7), (90, 18), False, (0.38, 0.35)),  # 31 of 80 ms
        ((50, 40), (60, 5), (90, 45), False, (0.8, 0.083)),  # the breakdown passes went the other way
        ((100, 60), (10, 7), (90, 9), True, (0.06, 0.007)),  # the share rose although the time fell: seconds
    ],
)
def test_a_cause_explains_half_of_the_change_or_is_none(
    before: tuple[int, int], after: tuple[int, int], light: tuple[int, int], explained: bool, shown: tuple[float, float]
) -> None:
    diagnosis = passes(before, after, light)
    assert (diagnosis.explained, amounts(diagnosis.change)) == (explained, shown)


@pytest.mark.parametrize(("light", "named"), [((90, 9), True), ((90, 46), True), ((44, 90), False)])
def test_one_pair_gives_no_cause_however_fast(light: tuple[int, int], named: bool) -> None:
    diagnosis = passes((100, 50), (50, 5), light, pairs=1)
    assert (diagnosis.explained, diagnosis.change is not None) == (False, named)


@pytest.mark.parametrize(("light", "label"), [((60, 45), "a"), ((90, 30), "b")])
def test_a_breakdown_pass_that_was_much_slower_gives_no_cause(light: tuple[int, int], label: str) -> None:
    diagnosis = passes((100, 50), (50, 5), light)
    assert (diagnosis.explained, diagnosis.slowed) == (False, (label, pytest.approx(1.67, abs=0.01)))


def test_recording_itself_is_no_cause() -> None:
    assert passes((100, 50), (50, 5), (90, 45), region="recording").change is None


def test_not_comparable_and_forced() -> None:
    base, _ = sides(slow, fast)
    other = SideRuns("fixed", "", tuple(fast(level="light", preset="small") for _ in range(3)), None)
    why = (Mismatch("preset", "not stated", "small"),)
    refused = diagnose_comparison(compare((base, other)))
    assert (refused.comparable, refused.mismatches, refused.sides) == (False, why, ())
    forced = diagnose_comparison(compare((base, other), anyway=True))
    assert (forced.forced, forced.mismatches, len(forced.sides)) == (True, why, 1)


def test_nothing_measured_on_a_side() -> None:
    empty = analyse(RunBuilder(level="light", device="host").build())
    diagnosis = diagnosed(sides(slow, fast)[0], SideRuns("fixed", "", (empty,) * 3, None))
    assert (diagnosis.speed, diagnosis.reason) == (
        None,
        Notice("not-measured-in", {"side": "fixed", "reason": Notice("no-step")}),
    )
