"""Gains of a ladder's rows: the base of each, rows without a ratio and why, and effects that are too small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from profiler.analyse.comparison import compare
from profiler.analyse.model.finding import Confidence, Finding, Gain, GainMethod, RuleText
from profiler.report.notices import describe
from reference_trainer.report.ladder import ITSELF, NO_RATIO, Ladder, LadderRow, measure_ladder
from reference_trainer.report.ladder_plan import plan_ladder
from tests.fakes.ladders import fix_list, light_run, made_up, program, speeds
from tests.fakes.sentences import method

GAINS = {"batch": 1.1, "parallel": 1.0, "async": 4.0, "embed": 2.0, "prefetch": 0.8, "shards": 1.5, "learn": 0.5}
ALIKE = 0.01
"""The made-up rounds spread a program's speed by 0.2%."""


def row(ladder: Ladder, kind: str, fix: str) -> LadderRow:
    [item] = [row for row in ladder.rows if (row.kind, row.fix) == (kind, fix)]
    return item


@pytest.fixture(scope="module")
def ladder() -> Ladder:
    return made_up(GAINS)


@pytest.mark.parametrize(
    ("kind", "fix", "gain", "total"),
    [
        ("cumulative", "batch", 1.1, 1.1),
        ("cumulative", "async", 4, 4.4),  # over + parallel
        ("cumulative", "prefetch", 0.8, 7.04),
        ("without", "prefetch", 0.8, 8.8),  # the full set is slower with it
        ("without", "async", 6.4, 1.1),  # with embed and prefetch, which require it
        ("without", "parallel", 1, 7.04),
        ("alone", "embed", 8, 8),  # with async
        ("instead", "shards", 1.5 / 1.1, 9.6),  # over fixed
    ],
)
def test_a_gain_is_over_the_right_row(ladder: Ladder, kind: str, fix: str, gain: float, total: float) -> None:
    item = row(ladder, kind, fix)
    assert item.gain.value == pytest.approx(gain, rel=ALIKE)
    assert item.total.value == pytest.approx(total, rel=ALIKE)
    assert item.gain.n == 3


_MEAN_ROUND = 6 ** (1 / 3)
"""The geometric mean of the factors of the three rounds."""


def changed(label: str, anyway: bool = False, **fields: Any) -> Ladder:
    """The ladder where one program has other runs."""
    plan = plan_ladder(fix_list())
    programs = speeds(plan, GAINS)
    return measure_ladder(plan.rows, {**programs, label: replace(programs[label], **fields)}, anyway=anyway)


def test_ratios_are_paired_by_round() -> None:
    # every round doubles or triples all speeds; means and unpaired ratios would spread by as much
    item = row(made_up(GAINS), "without", "embed")
    assert item.gain.low is not None
    assert item.gain.high is not None
    assert item.gain.high / item.gain.low < 1.02
    assert (item.measures["tokens_per_s"].high or 0) / (item.measures["tokens_per_s"].low or 1) > 2.5


def test_no_effect_is_recognisable(ladder: Ladder) -> None:
    assert not row(ladder, "without", "parallel").gain.different
    assert row(ladder, "without", "prefetch").gain.different
    one_round = row(made_up(GAINS, rounds=1), "without", "async")
    assert one_round.gain.value == pytest.approx(6.4, rel=ALIKE)
    assert (one_round.gain.different, one_round.gain.low) == (False, None), "one round has no interval"


def test_the_baseline_is_compared_with_itself(ladder: Ladder) -> None:
    item = ladder.rows[0]
    assert (item.gain.value, item.gain.low, item.gain.high) == (1, 1, 1)
    assert (item.gain.reason, item.gain.different) == (ITSELF, False)


def test_other_work_has_no_ratio(ladder: Ladder) -> None:
    item = row(ladder, "work", "learn")
    for other in (item, row(ladder, "beside", "")):
        for ratio in (other.gain, other.total):
            assert ratio == NO_RATIO[other.kind]
    assert item.measures["tokens_per_s"].value == pytest.approx(_MEAN_ROUND * 1000 * 1.1 * 8 * 0.5, rel=ALIKE)


def test_narrower_products_are_compared_with_the_full_set() -> None:
    plan = plan_ladder(fix_list(programs=[program("bf16", "precision")]))
    programs = speeds(plan, GAINS)
    narrower = tuple(light_run(speed, dtype="bf16") for speed in (1e4, 1e4, 1e4))
    ladder = measure_ladder(plan.rows, {**programs, "bf16": replace(programs["bf16"], light=narrower)})
    assert row(ladder, "precision", "").gain.value is not None


def test_a_row_that_is_not_comparable_has_no_gain_and_says_why() -> None:
    another = tuple(light_run(9e6, corpus="b") for _ in range(3))
    item = row(changed("without parallel", light=another), "without", "parallel")
    assert (item.gain.value, describe(item.gain.reason)) == (None, "not comparable: corpus: b against not stated")
    assert describe(item.total.reason) == "not comparable: corpus: not stated against b"
    forced = row(changed("without parallel", anyway=True, light=another), "without", "parallel")
    assert forced.gain.value is not None


def test_rows_that_differ_on_purpose_leave_the_sides_comparable(ladder: Ladder) -> None:
    programs = speeds(plan_ladder(fix_list()), GAINS)
    done = compare([programs["as-found"], programs["fixed"]], extensions={"ladder": ladder})
    assert done.comparable
    assert done.extensions["ladder"] is ladder
    assert method(done)[-len(tuple(ladder.method_sentences())) :] == tuple(ladder.method_sentences())


def distinct_pairs() -> int:
    """Of programs, of the rows with a like-for-like gain."""
    rows = [row for row in plan_ladder(fix_list()).rows if row.kind not in NO_RATIO]
    return len({frozenset((row.program, row.against)) for row in rows if row.program != row.against})


def test_a_program_that_ran_twice_counts_with_the_mean_of_its_round() -> None:
    fixed = speeds(plan_ladder(fix_list()), GAINS)["fixed"]
    # the first run of a round is four times too slow by turns, the second by the other turns
    hiccups = [1, 0.25, 1], [0.25, 1, 0.25]
    rates = [run.measures["tokens_per_s"].value or 0 for run in fixed.light]
    light, repeated = (
        tuple(light_run(rate * factor) for rate, factor in zip(rates, factors, strict=True)) for factors in hiccups
    )
    ladder = changed("fixed", light=light, again=repeated)
    item = row(ladder, "without", "async")
    assert item.gain.value == pytest.approx(6.4 / 2, rel=ALIKE)
    assert (item.gain.n, item.gain.different) == (3, True)
    assert item.gain.high is not None
    assert item.gain.low is not None
    assert item.gain.high / item.gain.low < 1.02, "each round has one hiccup in two runs, so rounds agree"
    last = [row for row in ladder.rows if row.kind == "cumulative"][-1]
    assert last.measures["tokens_per_s"].n == 6


def test_a_second_run_that_measured_nothing_leaves_the_first() -> None:
    empty = tuple(replace(run, measures={}) for run in speeds(plan_ladder(fix_list()), GAINS)["fixed"].light)
    assert row(changed("fixed", again=empty), "without", "async").gain.value == pytest.approx(6.4, rel=ALIKE)


def test_measures_are_over_the_runs_and_the_breakdown_pass_or_the_last_run_is_kept() -> None:
    plan = plan_ladder(fix_list())
    programs = speeds(plan, GAINS)
    detail = light_run(7.0)
    programs["+ batch"] = replace(programs["+ batch"], detail=detail)
    ladder = measure_ladder(plan.rows, programs)
    assert row(ladder, "cumulative", "batch").analysis is detail
    assert row(ladder, "instead", "shards").analysis is programs["shards"].light[-1]
    speed = row(ladder, "alone", "async").measures["tokens_per_s"]
    assert (speed.value, speed.n) == (pytest.approx(_MEAN_ROUND * 4000, rel=ALIKE), 3)


def test_the_method_counts_each_pair_of_programs_once(ladder: Ladder) -> None:
    *_, chance = ladder.method_sentences()
    pairs = distinct_pairs()
    gains = sum(item.gain.low is not None and item.kind != "baseline" for item in ladder.rows)
    assert pairs < gains, "rows of the same two programs count once"
    assert f" {pairs} intervals" in chance
    assert len(tuple(made_up(GAINS, rounds=1, interrupted=True).method_sentences())) == 2, "one round has no interval"


def test_what_was_not_recorded_is_no_ratio() -> None:
    plan = plan_ladder(fix_list())
    programs = {label: replace(side, light=()) for label, side in speeds(plan, GAINS).items()}
    ladder = measure_ladder(plan.rows, programs, unavailable=plan.unavailable)
    assert ladder.rounds == 0
    assert {item.gain.value for item in ladder.rows} == {None}
    assert all(item.gain.reason and item.analysis is None for item in ladder.rows)
    assert ladder.unavailable == plan.unavailable


def test_the_finding_about_the_program_before_a_step_predicts_its_gain() -> None:
    plan = plan_ladder(fix_list())
    step = next(row for row in plan.rows if row.kind == "cumulative" and row.fix == "async")
    finding = Finding(
        RuleText("per-element-reads", "It reads elements one by one", (), "Read once."),
        *(0.05, 0.5, 0.5, 0.5),
        Confidence.HIGH,
        gains=(Gain(GainMethod.BOUND, 2.0, 1.9, 2.1),),
    )
    for rule, findings, expected in (
        ("per-element-reads", (finding,), (2.0, 1.9, 2.1)),
        ("per-element-reads", (replace(finding, gains=()),), (None, None, None)),
        ("per-element-reads", (), (None, None, None)),
        ("", (finding,), (None, None, None)),
    ):
        programs = speeds(plan, GAINS)
        programs[step.against] = replace(programs[step.against], detail=replace(light_run(7.0), findings=findings))
        rows = [replace(row, rule=rule) for row in plan.rows]
        predicted = row(measure_ladder(rows, programs), "cumulative", "async").predicted
        assert (predicted.value, predicted.low, predicted.high) == expected
        assert (predicted.value is None) == (predicted.reason is not None)


def test_without_a_breakdown_pass_of_the_program_before_it_nothing_is_predicted(ladder: Ladder) -> None:
    assert all(row.predicted.value is None and row.predicted.reason for row in ladder.rows)
