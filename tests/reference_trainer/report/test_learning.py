"""Learning curves: held-out values, what has to be beaten, and a loss that stays stuck on axes of its own."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from profiler.analyse.model import Analysis, Series
from profiler.report import blocks
from profiler.report.build import build_report
from tests.report import ladders, samples
from tests.report.test_build import of_kind


def with_learner(found: Analysis) -> blocks.Text:
    """The sentence of a ladder whose learning row ended in this run."""
    ladder = ladders.ladder()
    rows = tuple(replace(row, analysis=found) if row.kind == "work" else row for row in ladder.rows)
    return of_kind(ladders.with_ladder(replace(ladder, rows=rows)), "learning", blocks.Text)[0]


def without(found: Analysis, *names: str) -> Analysis:
    return replace(found, series=tuple(one for one in found.series if one.name not in names))


def test_a_ladder_shows_learning_beside_a_loss_that_stays_stuck() -> None:
    loss, accuracy = of_kind(ladders.with_ladder(), "learning", blocks.Lines)
    assert loss.separate_x
    assert loss.separate_y
    assert [panel.title for panel in loss.panels] == [
        "learn: cross-entropy",
        "as-found: share of wrong predictions (0/1 loss)",
    ]
    assert [panel.y_label for panel in loss.panels] == ["nats", ""]
    learn, stuck = loss.panels
    assert [curve.label for curve in learn.curves] == ["training text", "held-out text"]
    assert [(level.label, level.text) for level in learn.levels] == [("ln V", "5.55"), ("bigram counts", "4.05")]
    assert learn.levels[0].value == pytest.approx(math.log(256))
    assert loss.y_limit(learn) > 5 > 1 >= loss.y_limit(stuck)
    assert (accuracy.separate_x, accuracy.separate_y, accuracy.y_label) == (True, False, "%")
    assert accuracy.panels[0].levels[0].value == pytest.approx(18.5)
    assert max(accuracy.panels[1].curves[0].y) < 3


def test_the_axis_is_in_steps() -> None:
    loss = of_kind(ladders.with_ladder(), "learning", blocks.Lines)[0]
    assert loss.x_label == "steps"
    assert loss.panels[0].curves[0].x[-1] == pytest.approx(240), "the last step measured"
    assert loss.panels[1].curves[0].x[-1] == pytest.approx(31)
    assert "the same time" in loss.note


def test_many_held_out_values_are_a_line_without_dots() -> None:
    few = of_kind(ladders.learner(), "learning", blocks.Lines)[0].panels[0].curves
    assert [bool(curve.high) for curve in few] == [False, True]
    often = ladders.learner()
    loss = next(one for one in often.series if one.name == "loss")
    dense = replace(often, series=(*without(often, "heldout_loss").series, replace(loss, name="heldout_loss")))
    many = of_kind(dense, "learning", blocks.Lines)[0].panels[0].curves
    assert [bool(curve.high) for curve in many] == [False, False]


def test_the_sentence_follows_the_numbers() -> None:
    assert with_learner(ladders.learner()).text == (
        "learn brought the cross-entropy on held-out text from 5.54 to 2.00 nats in 240 steps, 0.361 of the ln V that "
        "guessing costs, and the held-out accuracy to 28.3%, 1.53× the 18.5% of bigram counts. "
        "The 0/1 loss of as-found was 0.984 at first and 0.987 at last. Its accuracy ended at 1.3%."
    )
    training = with_learner(without(ladders.learner(), "heldout_loss", "heldout_accuracy")).text
    assert "on its training text from 5.50" in training
    assert "held-out" not in training
    silent = replace(ladders.learner(), info=samples.info("learn", work="learning"))
    assert "guessing" not in with_learner(silent).text
    assert "bigram" not in with_learner(silent).text


def test_a_run_without_any_curve_draws_none() -> None:
    names = ("loss", "accuracy", "heldout_loss", "heldout_accuracy")
    ladder = ladders.ladder()
    rows = tuple(
        replace(row, analysis=without(ladders.learner(), *names)) if row.kind == "work" else row for row in ladder.rows
    )
    plots = of_kind(ladders.with_ladder(replace(ladder, rows=rows)), "learning", blocks.Lines)
    assert [plot.separate_y for plot in plots] == [False, False]
    assert [panel.title for panel in plots[0].panels] == ["as-found"]


def test_a_single_run_of_it_shows_the_same() -> None:
    subject = ladders.learner()
    assert of_kind(subject, "learning", blocks.Text)[0].text.startswith("learn brought the cross-entropy on held-out")
    loss, accuracy = of_kind(subject, "learning", blocks.Lines)
    assert (loss.y_label, loss.separate_y, loss.x_label) == ("nats", False, "steps")
    assert [len(panel.curves) for panel in (*loss.panels, *accuracy.panels)] == [2, 2]
    rows = of_kind(subject, "learning", blocks.Table)[0].rows
    assert [row[0].text for row in rows] == ["Loss", "Accuracy", "Loss, held-out text", "Accuracy, held-out text"]


def test_held_out_values_in_the_table_are_those_that_the_sentence_names() -> None:
    """What a run ended with; as the program stated it where it did, not the mean over its evaluations."""
    subject = ladders.learner()
    rows = {row[0].text: row for row in of_kind(subject, "learning", blocks.Table)[0].rows}
    assert "to 2.00 nats" in of_kind(subject, "learning", blocks.Text)[0].text
    assert rows["Loss, held-out text"][1].text == "2.00"
    assert rows["Accuracy, held-out text"][1].text == "28"
    assert [row[0].note for row in rows.values()] == [*["mean of the run"] * 2, *["last of the run"] * 2]
    stated = replace(subject, info=replace(subject.info, facts={**subject.info.facts, "heldout_loss": 1.75}))
    assert of_kind(stated, "learning", blocks.Table)[0].rows[2][1].text == "1.75"
    unknown = without(subject, "heldout_loss")
    assert of_kind(unknown, "learning", blocks.Table)[0].rows[2][1].text == "2.30", (
        "the measure, where there is no curve"
    )


def test_held_out_values_of_two_sides_have_a_ratio_of_their_last_values() -> None:
    found = samples.comparison()
    ends = ((4.0, 3.0), (4.0, 2.0))
    series = [Series("heldout_loss", "1", (0.0, 1.0), values) for values in ends]
    sides = tuple(
        replace(side, runs=tuple(replace(run, series=(one,)) for run in side.runs))
        for side, one in zip(found.sides, series, strict=True)
    )
    subject = replace(found, sides=sides)
    row = next(r for r in of_kind(subject, "learning", blocks.Table)[0].rows if r[0].text == "Loss, held-out text")
    assert [cell.text for cell in row[1:]] == ["3", "2", "0.667"]
    assert row[3].note == "of the medians"


def test_held_out_values_are_no_utilisation() -> None:
    section = next(one for one in build_report(ladders.learner()).sections if one.key == "utilisation")
    assert not [block for block in section.blocks if isinstance(block, blocks.Lines)]


def test_sides_that_do_not_learn_look_as_before() -> None:
    found = samples.comparison()
    runs = tuple(replace(run, series=ladders.stuck()) for run in found.sides[0].runs)
    subject = replace(found, sides=(replace(found.sides[0], runs=runs), found.sides[1]))
    loss, accuracy = of_kind(subject, "learning", blocks.Lines)
    assert (loss.x_label, loss.y_label, accuracy.y_label) == ("seconds", "", "%")
    assert loss.panels[0].curves[0].label == "as-found"
    assert not of_kind(subject, "learning", blocks.Text)
