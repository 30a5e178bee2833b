"""Claims: every one beside what was measured, with its side. tests/approval holds sentences and reasons."""

from __future__ import annotations

from dataclasses import replace

from profiler.analyse.model import Comparison, Measure
from profiler.report import blocks
from reference_trainer.report import claims
from tests.report import ladders, samples
from tests.report.test_build import of_kind

BATCH = ("Tokenization of 8 samples in one batch", "")


def cells(report_input: Comparison) -> dict[tuple[str, str], blocks.Cell]:
    """(what, side) -> measured."""
    [table] = of_kind(report_input, "claims", blocks.Table)
    return {(row[0].text, row[0].note): row[2] for row in table.rows}


def test_only_a_ladder_of_the_language_model_has_claims() -> None:
    assert samples.build_section(claims.PLUGIN, samples.comparison()) is None
    assert samples.build_section(claims.PLUGIN, ladders.saying(trainer="reference_trainer.ssm")) is None
    assert samples.build_section(claims.PLUGIN, ladders.saying(trainer="reference_trainer.lm")) is not None


def test_tokenization_in_one_call_comes_from_the_row_of_batch_tokenize() -> None:
    counted = Measure("tokenized_samples_per_step", 4.0, "1/step")
    detail = replace(
        samples.analysis(), measures={counted.name: counted}, breakdown={"input": Measure("input", 0.002, "s")}
    )
    ladder = ladders.ladder()
    rows = tuple(replace(row, analysis=detail) if row.fixes == ("batch-tokenize",) else row for row in ladder.rows)
    cell = cells(ladders.with_ladder(replace(ladder, rows=rows)))[BATCH]
    assert (cell.text, cell.unit) == ("4.00", "ms")


def test_what_was_not_measured_is_no_zero() -> None:
    empty = replace(samples.empty_comparison(), extensions={"ladder": ladders.ladder()})
    assert all(cell.missing and not cell.text for cell in cells(empty).values())
    report_input = ladders.with_ladder()
    for side in (replace(report_input.sides[0], detail=None), replace(report_input.sides[0], runs=(), detail=None)):
        assert cells(replace(report_input, sides=(side, report_input.sides[1])))[BATCH].missing
