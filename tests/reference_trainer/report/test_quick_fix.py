"""Smaller chunks: the plots and the table of sizes. tests/approval holds the sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model import Measure
from profiler.report import blocks
from profiler.report.model import ReportInput
from reference_trainer.report.quick_fix import PLUGIN, sizes, summary
from tests.report import ladders, samples
from tests.report.test_build import of_kind


def test_no_section_without_a_ladder_or_for_another_trainer() -> None:
    assert samples.build_section(PLUGIN, samples.comparison()) is None
    assert samples.build_section(PLUGIN, ladders.saying(trainer="reference_trainer.ssm")) is None


@pytest.mark.parametrize(
    ("gains", "statement"),
    [
        ({}, "no difference was seen at any size"),
        ({"t375": ladders.gain(0.8), "t187": ladders.gain(0.6)}, "do change: 0.800× at 375, 0.600× at 187"),
        ({"t375": ladders.gain(0.801, 0.7)}, "at 375 the runs spread too widely to say (0.801×, 95% 1/2.51 to 1.61)"),
        ({f"t{size}": ladders.gain(0.8, 0.7) for size in (1500, 750, 375, 187)}, "the runs of every size spread"),
    ],
    ids=["same", "moved", "one wide", "all wide"],
)
def test_the_sentence_follows_the_intervals(gains: dict, statement: str) -> None:
    ladder = ladders.with_gains("chunk size", **gains)
    text = summary(sizes(ladder, ReportInput.from_results(ladders.with_ladder(ladder))))
    assert statement in text
    assert ("training is no faster" in text) == (not gains or "at 375 the runs" in statement)


def test_a_smaller_chunk_that_takes_longer_is_no_fraction() -> None:
    slow = {"step_time": Measure("step_time", 0.1, "s")}
    rows = (
        replace(row, measures={**row.measures, **slow}) if row.tokens_per_chunk == 187 else row
        for row in ladders.ladder().rows
    )
    ladder = replace(ladders.ladder(), rows=tuple(rows))
    assert "1.31× the time for 1/16.0" in summary(sizes(ladder, ReportInput.from_results(ladders.with_ladder(ladder))))


def test_table_and_plots_hold_every_size_once() -> None:
    """A size that is as-found's own shares its row."""
    ladder = ladders.ladder()
    repeated = replace(ladder.rows[0], kind="chunk size", label="3,000 tokens a chunk")
    report_input = ladders.with_ladder(replace(ladder, rows=(*ladder.rows, repeated)))
    [table] = of_kind(report_input, "quick-fix", blocks.Table)
    assert [row[0].text for row in table.rows] == ["3,000", "1,500", "750", "375", "187"]
    assert table.rows[0][3].text == "baseline"
    plots = of_kind(report_input, "quick-fix", blocks.Lines)
    assert [plot.y_label for plot in plots] == ["ms", "tokens/s"]
    for plot in plots:
        curve = plot.panels[0].curves[0]
        assert curve.x == (187.0, 375.0, 750.0, 1500.0, 3000.0)
        assert all(low <= y <= high for low, y, high in zip(curve.low, curve.y, curve.high, strict=True))
    assert plots[0].panels[0].curves[0].y[-1] == pytest.approx(1e3 * 3000 / ladders.BASE)


def test_as_found_without_a_stated_size_takes_it_from_the_program() -> None:
    ladder = ladders.ladder()
    unknown = replace(ladder, rows=(replace(ladder.rows[0], tokens_per_chunk=None), *ladder.rows[1:]))
    assert all(not size.is_default for size in sizes(unknown, ReportInput.from_results(ladders.with_ladder(unknown))))
    stated = replace(ladders.saying(tokens_per_chunk=3000), extensions={"ladder": unknown})
    assert [size.tokens for size in sizes(unknown, ReportInput.from_results(stated)) if size.is_default] == [3000]
