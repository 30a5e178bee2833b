"""Learning curves: panels, axes and reference levels. tests/approval holds the sentences."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.measures import Series
from profiler.report import blocks
from profiler.report.build import build_report
from tests.report import ladders, samples
from tests.report.test_build import of_kind


def without(analysis: Analysis, *names: str) -> Analysis:
    return replace(analysis, series=tuple(series for series in analysis.series if series.name not in names))


def test_a_ladder_shows_learning_beside_a_loss_that_stays_stuck() -> None:
    loss, accuracy = of_kind(ladders.with_ladder(), "learning", blocks.Lines)
    assert loss.separate_x
    assert loss.separate_y
    assert [panel.y_label for panel in loss.panels] == ["nats", ""]
    learn, stuck = loss.panels
    assert len(learn.curves) == 2, "training text and held-out text"
    assert [level.value for level in learn.levels] == pytest.approx([math.log(256), 4.05, 2.4, 1.75])
    assert loss.y_limit(learn) > 5 > 1 >= loss.y_limit(stuck)
    assert (accuracy.separate_x, accuracy.separate_y, accuracy.y_label) == (True, False, "%")
    assert accuracy.panels[0].levels[0].value == pytest.approx(18.5)
    assert max(accuracy.panels[1].curves[0].y) < 3


def test_the_table_shows_the_yardsticks_that_win_too() -> None:
    table = of_kind(ladders.with_ladder(), "learning", blocks.Table)[0]
    assert [[cell.text for cell in row[:2]] for row in table.rows] == [
        ["this model", "1.980"], ["2-gram counts", "4.050"], ["3-gram counts", "2.400"], ["torch.nn.GRU", "1.750"],
    ]  # fmt: skip
    assert [row[0].text for row in table.rows if row[1].strong] == ["torch.nn.GRU"]


def test_a_run_of_an_older_version_is_compared_with_its_bigram_counts() -> None:
    run = ladders.learner()
    facts = {key: value for key, value in run.info.facts.items() if key != "yardsticks"}
    old = replace(run, info=replace(run.info, facts={**facts, "bigram_loss": 4.05, "bigram_accuracy": 0.185}))
    assert of_kind(old, "learning", blocks.Lines)[0].panels[0].levels[1].value == 4.05
    assert [table.caption for table in of_kind(old, "learning", blocks.Table)] == ["At the end of the run"]


def test_the_axis_is_in_steps() -> None:
    loss = of_kind(ladders.with_ladder(), "learning", blocks.Lines)[0]
    assert loss.x_label == "steps"
    assert [panel.curves[0].x[-1] for panel in loss.panels] == [pytest.approx(240), pytest.approx(31)]


def test_many_held_out_values_are_a_line_without_dots() -> None:
    often = ladders.learner()
    loss = next(series for series in often.series if series.name == "loss")
    dense = replace(often, series=(*without(often, "heldout_loss").series, replace(loss, name="heldout_loss")))
    for report_input, dots in ((often, [False, True]), (dense, [False, False])):
        curves = of_kind(report_input, "learning", blocks.Lines)[0].panels[0].curves
        assert [bool(curve.high) for curve in curves] == dots


def test_without_held_out_text_or_any_curve() -> None:
    training = without(ladders.learner(), "heldout_loss", "heldout_accuracy")
    assert "held-out" not in of_kind(training, "learning", blocks.Text)[0].text
    silent = without(training, "loss", "accuracy")
    ladder = ladders.ladder()
    rows = tuple(replace(row, analysis=silent) if row.kind == "work" else row for row in ladder.rows)
    plots = of_kind(ladders.with_ladder(replace(ladder, rows=rows)), "learning", blocks.Lines)
    assert [[panel.title for panel in plot.panels] for plot in plots] == [["as-found"], ["as-found"]]


def test_held_out_values_in_the_table_are_those_that_the_run_ended_with() -> None:
    """As the program stated them where it did; not the mean over its evaluations."""
    report_input = ladders.learner()

    def held_out_loss(analysis: Analysis) -> str:
        rows = {row[0].text: row for row in of_kind(analysis, "learning", blocks.Table)[-1].rows}
        return rows["Loss, held-out text"][1].text

    assert held_out_loss(report_input) == "2.00"
    stated = replace(
        report_input, info=replace(report_input.info, facts={**report_input.info.facts, "heldout_loss": 1.75})
    )
    assert held_out_loss(stated) == "1.75"
    assert held_out_loss(without(report_input, "heldout_loss")) == "2.30", "the measure, where there is no curve"


def test_two_sides_have_a_ratio_of_their_last_held_out_values() -> None:
    comparison = samples.comparison()
    series = [Series("heldout_loss", "1", (0.0, 1.0), (4.0, last)) for last in (3.0, 2.0)]
    sides = tuple(
        replace(side, runs=tuple(replace(run, series=(item,)) for run in side.runs))
        for side, item in zip(comparison.sides, series, strict=True)
    )
    rows = of_kind(replace(comparison, sides=sides), "learning", blocks.Table)[0].rows
    found = [cell.text for row in rows if row[0].text == "Loss, held-out text" for cell in row[1:]]
    assert found == ["3", "2", "0.667"]


def test_loss_is_no_utilization_and_sides_that_do_not_learn_have_seconds() -> None:
    section = next(item for item in build_report(ladders.learner()).sections if item.key == "utilization")
    assert not [block for block in section.blocks if isinstance(block, blocks.Lines)]
    comparison = samples.comparison()
    runs = tuple(replace(run, series=ladders.stuck()) for run in comparison.sides[0].runs)
    report_input = replace(comparison, sides=(replace(comparison.sides[0], runs=runs), comparison.sides[1]))
    assert [plot.x_label for plot in of_kind(report_input, "learning", blocks.Lines)] == ["seconds", "seconds"]
    (note,) = of_kind(report_input, "learning", blocks.Text)
    assert note.text.startswith("Sides run for the same time")
