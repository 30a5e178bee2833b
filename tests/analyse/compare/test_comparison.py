"""Ratios over pairs, comparability, environment and method of a comparison."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.compare.comparability import MUST_BE_EQUAL
from profiler.analyse.compare.comparison import SideRuns, compare
from profiler.analyse.compare.ratios import paired_ratio
from profiler.analyse.model import Analysis, Measure
from profiler.core.errors import ProfilerError
from profiler.core.notice import Notice
from profiler.report.text import describe
from profiler.run.model import RunInfo
from tests.fakes.sentences import method, mismatches, note
from tests.recorded.builders import MAIN, MS, RunBuilder

FACTS: dict[str, Any] = dict.fromkeys(MUST_BE_EQUAL, "same") | {"device": "host"}


def run_of(value: float | None, *, name: str = "tokens_per_s", level: str = "light", **info: Any) -> Analysis:
    """An analysis of one measure."""
    about = RunInfo(
        1, "r", info.pop("started_at", ""), ("t.py",), level=level, facts=FACTS | info.pop("facts", {}), **info
    )
    measure = Measure(name, value, "tokens/s", reason=None if value is not None else note("no tokens"))
    steps = {"steps": Measure("steps", 10, "steps"), "step_time": Measure("step_time", 0.3, "s")}
    return Analysis(about, steps | {name: measure}, {}, {})


def side(label: str, *values: float | None, detail: Analysis | None = None, **info: Any) -> SideRuns:
    return SideRuns(label, f"python {label}.py", tuple(run_of(value, **info) for value in values), detail)


def test_ratio_is_the_geometric_mean_with_a_t_interval_of_logarithms() -> None:
    got = paired_ratio("tokens_per_s", side("a", 10, 20, 40), side("b", 20, 80, 640))
    # the pairs' ratios are 2, 4 and 16: logarithms to base 2 are 1, 2, 4, with mean 7/3 and variance 7/3
    half = 4.302652729911275 * math.sqrt(7 / 3 / 3)  # t(0.975, 2) of any printed table: 4.303
    assert got.value == pytest.approx(2 ** (7 / 3))
    assert (got.low, got.high) == pytest.approx((2 ** (7 / 3 - half), 2 ** (7 / 3 + half)))
    assert (got.n, got.different) == (3, False), "the interval reaches below 1"
    clear = paired_ratio("tokens_per_s", side("a", 10, 10, 10), side("b", 19, 20, 21))
    assert clear.different
    slower = paired_ratio("tokens_per_s", side("a", 19, 20, 21), side("b", 10, 10, 10))
    assert slower.different
    assert slower.value == pytest.approx(1 / (clear.value or 0))


@pytest.mark.parametrize(
    ("one", "other", "value", "different"), [(6000.0, 3.0, 0.0005, True), (7.0, 7.0, 1.0, False), (0.1, 0.3, 3.0, True)]
)
def test_what_is_counted_exactly_has_an_exact_ratio(one: float, other: float, value: float, different: bool) -> None:
    got = paired_ratio("tokens_per_s", side("a", one, one), side("b", other, other))
    assert (got.value, got.low, got.high) == pytest.approx((value, value, value))
    assert got.different is different


@pytest.mark.parametrize(
    ("one", "other", "reason", "n"),
    [
        ((5.0,), (10.0,), "one pair: no interval", 1),
        ((0.0, 1.0), (1.0, 1.0), "a has 0: no ratio", 2),
        ((1.0, 1.0), (0.0, 0.0), "b has 0: no ratio", 2),
        ((-1.0, 1.0), (1.0, 1.0), "a has values that are not positive: no ratio", 2),
        ((None, None), (1.0, 1.0), "not measured in a: no tokens", 0),
        ((), (), "not measured in any pair of runs", 0),
    ],
)
def test_where_there_is_no_ratio_or_no_interval_there_is_a_reason(
    one: tuple[float | None, ...], other: tuple[float | None, ...], reason: str, n: int
) -> None:
    got = paired_ratio("tokens_per_s", side("a", *one), side("b", *other))
    assert (describe(got.reason), got.n, got.low, got.high, got.different) == (reason, n, None, None, False)
    assert got.value == (pytest.approx(2.0) if reason.startswith("one pair") else None)


def test_pairs_that_only_one_side_measured_are_left_out() -> None:
    got = paired_ratio("tokens_per_s", side("a", 10, None, 10), side("b", 20, 999, 20, 77))
    assert (got.value, got.n) == (2.0, 2)


def test_sides_have_medians_with_their_range() -> None:
    done = compare((side("a", 30, 10, 20), side("b", 60, None, 40)))
    assert done.title == "b against a"
    assert done.pairs == 3
    first, second = (one.measures["tokens_per_s"] for one in done.sides)
    assert (first.value, first.low, first.high, first.n) == (20, 10, 30, 3)
    assert (second.value, second.low, second.high, second.n) == (50, 40, 60, 2)
    missing = compare((side("a", None), side("b", 1))).sides[0].measures["tokens_per_s"]
    assert (missing.value, missing.reason) == (None, note("no tokens"))


@pytest.mark.parametrize("fact", sorted(MUST_BE_EQUAL))
def test_each_fact_that_differs_is_a_reason_not_to_compare(fact: str) -> None:
    sides = (side("a", 1, 1), side("b", 2, 2, facts={fact: "other"}))
    refused = compare(sides)
    assert not refused.comparable
    assert mismatches(refused) == (f"{fact}: {FACTS[fact]} against other",)
    assert not refused.forced
    forced = compare(sides, anyway=True)
    assert (forced.comparable, forced.forced) == (False, True)


def test_other_reasons_not_to_compare() -> None:
    base = side("a", 1, host={"cpu": "X", "cores": 2})
    other = side("b", 1, host={"cpu": "Y", "cores": 2})
    assert mismatches(compare((base, other))) == ("host cpu: X against Y",)
    assert mismatches(compare((side("a", 1), side("b", 1, level="standard")))) == ("level: light against standard",)
    cuda = {"facts": {"device": "cuda"}}
    reasons = mismatches(
        compare((side("a", 1, devices=({"name": "H"},), **cuda), side("b", 1, devices=({"name": "A"},), **cuda)))
    )
    assert reasons == ("GPUs: H against A",)
    detail = run_of(1, level="standard", facts={"seed": 7})
    assert mismatches(compare((side("a", 1), side("b", 1, detail=detail)))) == ("seed: same against 7",)


def test_a_fact_that_one_side_does_not_state_is_a_reason_and_one_that_nobody_states_is_said() -> None:
    def bare(run: Analysis, *drop: str) -> Analysis:
        facts = {name: value for name, value in run.info.facts.items() if name not in drop}
        return replace(run, info=replace(run.info, facts=facts))

    one, other = side("a", 1), side("b", 1)
    without = replace(other, light=tuple(bare(run, "preset") for run in other.light))
    assert mismatches(compare((one, without))) == ("preset: same against not stated",)
    neither = [replace(s, light=tuple(bare(run, "seed", "work") for run in s.light)) for s in (one, other)]
    done = compare(neither)
    assert done.comparable
    assert any("do not state work, seed" in sentence for sentence in method(done)), method(done)


def test_environment_rows() -> None:
    common = {"host": {"cpu": "X", "memory_bytes": 8_000_000_000, "environment": {"OMP_NUM_THREADS": "1"}}}
    done = compare(
        (
            side("a", 1, versions={"numpy": "2.0"}, facts={"variant": "slow", "fixes": []}, **common),
            side("b", 1, versions={"numpy": "2.1"}, facts={"variant": "fast", "fixes": ["x", "y"]}, **common),
        )
    )
    assert done.differences == (
        ("variant", ("slow", "fast")),
        ("fixes", ("none", "x, y")),
        ("numpy version", ("2.0", "2.1")),
    )
    same = dict(done.environment)
    assert same["device"] == "host device (CPU)"
    assert same["memory"] == "8.00 GB"
    assert same["environment OMP NUM THREADS"] == "1"


def test_method_says_whether_runs_were_interleaved_from_their_starts() -> None:
    def started(label: str, *at: int) -> SideRuns:
        runs = tuple(run_of(1, started_at=f"2025-01-01T00:00:{second:02}Z") for second in at)
        return SideRuns(label, "", runs, None)

    def order(one: SideRuns, other: SideRuns) -> str:
        return next(s for s in method(compare((one, other))) if "interleaved" in s)

    assert "take turns" in order(started("a", 1, 4), started("b", 2, 3))
    assert "a always first" in order(started("a", 1, 3), started("b", 2, 4))
    assert "not interleaved" in order(started("a", 1, 2), started("b", 3, 4))
    sentences = method(compare((started("a", 1, 4), started("b", 2, 3))))
    assert sentences[0] == "2 pairs of runs; measured time of a run, warm-up not counted: a 3.00 s, b 3.00 s."
    assert any("1 degree of freedom" in s for s in sentences)
    assert any("no interval" in s for s in method(compare((side("a", 1), side("b", 1)))))


def detailed(length: int) -> Analysis:
    builder = RunBuilder(device="host", **{k: v for k, v in FACTS.items() if k != "device"})
    builder.steps(6, length)
    builder.stack((*MAIN, "t.py:9:work"), 0, 6 * length)
    return analyse(builder.build())


def test_slowdown_and_flame_difference_come_from_the_breakdown_pass() -> None:
    slow, fast = detailed(600 * MS), detailed(150 * MS)
    done = compare((side("a", 1, 1, detail=slow), side("b", 1, 1, detail=fast)))
    assert done.comparable, mismatches(done)
    slowdown = done.sides[0].recording_slowdown
    assert (slowdown.value, slowdown.unit, slowdown.n) == (pytest.approx(2.0), "x", 2)
    assert (done.flame_diff.before, done.flame_diff.after) == pytest.approx((0.6, 0.15))
    assert any("its times are not used in any ratio" in sentence for sentence in method(done))


def test_a_run_that_is_its_own_breakdown_pass_has_no_slowdown() -> None:
    runs = [detailed(100 * MS), detailed(200 * MS)]
    done = compare([SideRuns(label, "", (run,), run) for label, run in zip("ab", runs, strict=True)])
    assert done.sides[0].recording_slowdown.value is None
    assert done.sides[0].recording_slowdown.reason == Notice("no-separate-breakdown-pass")
    assert done.ratios["b"]["step_time"].value == pytest.approx(2)
    assert not any("enter no ratio" in sentence for sentence in method(done))
    assert compare((side("a", 1), side("b", 1))).sides[0].recording_slowdown.reason == Notice("no-breakdown-pass")


def test_three_sides_and_a_floor() -> None:
    done = compare(
        (side("a", 1, 1), side("b", 2, 2), side("c", 4, 4)), floor=side("floor", 3), title="T", created_at="now"
    )
    assert {label: found["tokens_per_s"].value for label, found in done.ratios.items()} == {"b": 2, "c": 4}
    assert (done.title, done.created_at, done.verdict) == ("T", "now", "")
    assert done.floor.measures["tokens_per_s"].value == 3


def test_one_side_is_no_comparison() -> None:
    with pytest.raises(ProfilerError, match="two sides or more"):
        compare((side("a", 1),))
