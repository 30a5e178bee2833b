"""Ratios over pairs, comparability, environment and method of a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from profiler.analyse.analysis import analyse
from profiler.analyse.comparability import MUST_BE_EQUAL, paired_ratio
from profiler.analyse.comparison import SideRuns, compare
from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.comparison import WITHOUT_CORE, Comparison, Ratio
from profiler.analyse.model.measures import Measure
from profiler.core.errors import Notice, ProfilerError
from profiler.run.model import RunInfo
from tests.fakes.sentences import mismatches, note
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


def ratio(one: Sequence[float | None], other: Sequence[float | None]) -> Ratio:
    return paired_ratio("tokens_per_s", side("a", *one), side("b", *other))


def test_ratio_is_the_geometric_mean_with_a_t_interval_of_logarithms() -> None:
    mean = ratio((10, 20, 40), (20, 80, 640))
    # the pairs' ratios are 2, 4 and 16: logarithms to base 2 are 1, 2, 4, with mean 7/3 and variance 7/3
    half = 4.302652729911275 * math.sqrt(7 / 3 / 3)  # t(0.975, 2) of any printed table: 4.303
    assert (mean.value, mean.low, mean.high) == pytest.approx((2 ** (7 / 3), 2 ** (7 / 3 - half), 2 ** (7 / 3 + half)))
    assert (mean.n, mean.different) == (3, False), "the interval reaches below 1"
    faster, slower = ratio((10, 10, 10), (19, 20, 21)), ratio((19, 20, 21), (10, 10, 10))
    assert (faster.different, slower.different) == (True, True)
    assert slower.value == pytest.approx(1 / (faster.value or 0))


def waiting(label: str, shares: Sequence[float], **values: Sequence[float]) -> SideRuns:
    """A side whose runs waited for a core for these shares of their time."""
    runs = []
    for number, share in enumerate(shares):
        given = {name: each[number] for name, each in values.items()} | {WITHOUT_CORE: share}
        measures = {name: Measure(name, value, "") for name, value in given.items()}
        runs.append(Analysis(RunInfo(1, "r", "", ("t.py",), facts=FACTS), measures, {}, {}))
    return SideRuns(label, "", tuple(runs), None)


def test_the_waits_of_the_slower_side_are_taken_out_and_those_of_the_faster_one_stay() -> None:
    """A step of 100 ms has a core for 25 ms, and one of 2 ms counts as a whole: that is 12.5 times as fast."""
    slow = waiting("slow", (0.75, 0.75), tokens_per_s=(10, 10), step_time=(0.1, 0.1), step_time_p95=(0.2, 0.2))
    fast = waiting("fast", (0.5, 0.5), tokens_per_s=(500, 500), step_time=(0.002, 0.002), step_time_p95=(0.01, 0.01))
    reason = Notice("waits-for-core", {"side": "slow", "share": 0.75})
    for pair, bound in (((slow, fast), 12.5), ((fast, slow), 1 / 12.5)):
        speed, time, late = (paired_ratio(name, *pair) for name in ("tokens_per_s", "step_time", "step_time_p95"))
        assert speed == Ratio("tokens_per_s", None, None, None, 2, True, reason, pytest.approx(bound))
        assert time.bound == pytest.approx(1 / bound)
        assert (late.value, late.bound, late.reason) == (None, None, reason), "waits of single steps are not known"


@pytest.mark.parametrize(
    ("slow", "waits", "bound"),
    [
        ((20, 10), (0.5, 0.5), None),  # pairs of 5 and 10 times: their interval includes 1
        ((10, 10.5), (0.5, 0.5), 200 / (2 * 10.25) * math.exp(-12.7062 * math.log(1.05) / 2)),
        ((90, 90), (0.75, 0.75), None),  # more was waited than the sides differ
        ((90, 90), (1.0, 1.0), None),
    ],
)
def test_the_bound_is_the_lower_end_of_the_interval_where_that_says_something(
    slow: Sequence[float], waits: Sequence[float], bound: float | None
) -> None:
    sides = waiting("slow", waits, tokens_per_s=slow), waiting("fast", (0.0, 0.0), tokens_per_s=(200, 200))
    found = paired_ratio("tokens_per_s", *sides)
    assert (found.value, found.different) == (None, bound is not None)
    assert found.bound == (None if bound is None else pytest.approx(bound, rel=1e-3))


def test_few_waits_stay_in_a_ratio() -> None:
    sides = waiting("a", (0.04, 0.05), tokens_per_s=(10, 10)), waiting("b", (0.02, 0.0), tokens_per_s=(500, 500))
    ratio = paired_ratio("tokens_per_s", *sides)
    assert (ratio.value, ratio.bound, ratio.reason) == (pytest.approx(50), None, None)


@pytest.mark.parametrize(
    ("one", "other", "value", "different"), [(6000.0, 3.0, 0.0005, True), (7.0, 7.0, 1.0, False), (0.1, 0.3, 3.0, True)]
)
def test_what_is_counted_exactly_has_an_exact_ratio(one: float, other: float, value: float, different: bool) -> None:
    exact = ratio((one, one), (other, other))
    assert (exact.value, exact.low, exact.high) == pytest.approx((value, value, value))
    assert exact.different is different


@pytest.mark.parametrize(
    ("one", "other", "reason", "n"),
    [
        ((5.0,), (10.0,), Notice("one-pair"), 1),
        ((0.0, 1.0), (1.0, 1.0), Notice("zero", {"side": "a"}), 2),
        ((1.0, 1.0), (0.0, 0.0), Notice("zero", {"side": "b"}), 2),
        ((-1.0, 1.0), (1.0, 1.0), Notice("not-positive", {"side": "a"}), 2),
        ((None, None), (1.0, 1.0), Notice("not-measured-in", {"side": "a", "reason": note("no tokens")}), 0),
        ((), (), Notice("not-measured-in-pairs"), 0),
    ],
)
def test_where_there_is_no_ratio_or_no_interval_there_is_a_reason(
    one: tuple[float | None, ...], other: tuple[float | None, ...], reason: Notice, n: int
) -> None:
    value = pytest.approx(2.0) if reason.code == "one-pair" else None
    assert ratio(one, other) == Ratio("tokens_per_s", value, None, None, n, different=False, reason=reason)


def test_pairs_that_only_one_side_measured_are_left_out() -> None:
    left = ratio((10, None, 10), (20, 999, 20, 77))
    assert (left.value, left.n) == (2.0, 2)


@pytest.mark.parametrize(
    ("second", "value"),
    [((20.0, 20.0), 2.0), ((80.0, 80.0), 4.0), ((None, 20.0), 2.0), ((0.0, 20.0), None)],
)
def test_second_runs_of_a_round_count_by_the_geometric_mean(second: tuple[float | None, ...], value: float) -> None:
    again = replace(side("b", 20, 20), again=side("b", *second).light)
    assert paired_ratio("tokens_per_s", side("a", 10, 10), again).value == (value and pytest.approx(value))


def test_sides_have_geometric_means_with_their_range() -> None:
    comparison = compare((side("a", 30, 10, 20), side("b", 60, None, 40)))
    assert (comparison.title, comparison.pairs) == ("b against a", 3)
    rows = [each.measures["tokens_per_s"] for each in comparison.sides]
    assert [(row.low, row.high, row.n) for row in rows] == [(10, 30, 3), (40, 60, 2)]
    assert [row.value for row in rows] == pytest.approx([6000 ** (1 / 3), 2400**0.5])
    missing = compare((side("a", None), side("b", 1))).sides[0].measures["tokens_per_s"]
    assert (missing.value, missing.reason) == (None, note("no tokens"))


def test_the_quotient_of_two_sides_is_their_ratio() -> None:
    comparison = compare((side("a", 30, 10, 20), side("b", 600, 900, 100)))
    first, last = (each.measures["tokens_per_s"].value for each in comparison.sides)
    assert first
    assert last
    assert last / first == pytest.approx(
        paired_ratio("tokens_per_s", side("a", 30, 10, 20), side("b", 600, 900, 100)).value
    )


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


def test_a_fact_that_one_side_does_not_state_is_a_reason_and_one_that_no_side_states_is_a_note() -> None:
    def bare(run: Analysis, *drop: str) -> Analysis:
        facts = {name: value for name, value in run.info.facts.items() if name not in drop}
        return replace(run, info=replace(run.info, facts=facts))

    one, other = side("a", 1), side("b", 1)
    without = replace(other, light=tuple(bare(run, "preset") for run in other.light))
    assert mismatches(compare((one, without))) == ("preset: same against not stated",)
    neither = [replace(s, light=tuple(bare(run, "seed", "work") for run in s.light)) for s in (one, other)]
    done = compare(neither)
    assert done.comparable
    assert notices(done, "unstated-facts") == [{"facts": ("work", "seed")}]


def test_environment_rows() -> None:
    common = {
        "git_commit": "3f2a9c1+changes",
        "host": {"cpu": "X", "memory_bytes": 8_000_000_000, "environment": {"OMP_NUM_THREADS": "1"}},
    }
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
    assert same["git commit"] == "3f2a9c1+changes"
    assert same["memory"] == "8.00 GB"
    assert same["environment OMP NUM THREADS"] == "1"


def notices(comparison: Comparison, code: str) -> list[Mapping[str, Any]]:
    return [notice.values for notice in comparison.method if notice.code == code]


@pytest.mark.parametrize(
    ("one", "other", "code", "first"),
    [
        ((1, 4), (2, 3), "interleaved", ""),
        ((1, 3), (2, 4), "interleaved", "a"),
        ((1, 2), (3, 4), "not-interleaved", None),
    ],
)
def test_the_method_tells_from_their_starts_whether_runs_were_interleaved(
    one: tuple[int, ...], other: tuple[int, ...], code: str, first: str | None
) -> None:
    sides = [
        SideRuns(label, "", tuple(run_of(1, started_at=f"2025-01-01T00:00:{second:02}Z") for second in starts), None)
        for label, starts in (("a", one), ("b", other))
    ]
    comparison = compare(sides)
    assert notices(comparison, code) == [{} if first is None else {"first": first}]
    seconds = (("a", pytest.approx(3.0)), ("b", pytest.approx(3.0)))
    assert notices(comparison, "pairs") == [{"pairs": 2, "seconds": seconds}]
    assert notices(comparison, "ratio-interval") == [{"pairs": 2}]


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
    assert notices(done, "breakdown-pass") == [{"levels": ("standard",)}]


def test_a_run_that_is_its_own_breakdown_pass_has_no_slowdown() -> None:
    runs = [detailed(100 * MS), detailed(200 * MS)]
    done = compare([SideRuns(label, "", (run,), run) for label, run in zip("ab", runs, strict=True)])
    assert done.sides[0].recording_slowdown.value is None
    assert done.sides[0].recording_slowdown.reason == Notice("no-separate-breakdown-pass")
    assert done.ratios["b"]["step_time"].value == pytest.approx(2)
    assert notices(done, "breakdown-pass") == []
    assert compare((side("a", 1), side("b", 1))).sides[0].recording_slowdown.reason == Notice("no-breakdown-pass")


def test_three_sides_and_a_floor() -> None:
    done = compare(
        (side("a", 1, 1), side("b", 2, 2), side("c", 4, 4)), floor=side("floor", 3), title="T", created_at="now"
    )
    assert {label: ratios["tokens_per_s"].value for label, ratios in done.ratios.items()} == {"b": 2, "c": 4}
    assert (done.title, done.created_at, done.verdict) == ("T", "now", "")
    assert done.floor.measures["tokens_per_s"].value == 3


def test_one_side_is_no_comparison() -> None:
    with pytest.raises(ProfilerError, match="two sides or more"):
        compare((side("a", 1),))
