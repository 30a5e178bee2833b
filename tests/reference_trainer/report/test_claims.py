"""Claims: every one beside what was measured, with its side. tests/approval holds sentences and reasons."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model import Comparison, Measure
from profiler.report import blocks
from profiler.report.model import ReportInput
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


def test_a_phase_is_the_gain_of_its_fixes_over_the_phase_before() -> None:
    rows = [row for row in claims.claim_rows(ReportInput.from_results(ladders.with_ladder())) if "phase" in row.what]
    assert [row.claimed.partition(",")[0] for row in rows] == ["2.5×", "40×", "3×"]
    assert [row.side.split(", ")[-1] for row in rows] == ["async", "device-loss", "blocking-wait"]
    gains = [row.measured.sort for row in rows]
    ladder = ladders.ladder()
    totals = {row.fix: row.total.value for row in ladder.of_kind("cumulative")}
    assert gains == pytest.approx(
        [totals["async"], totals["device-loss"] / totals["async"], totals["blocking-wait"] / totals["device-loss"]]
    )
    assert rows[0].measured.interval, "as-found is paired with every row"
    assert not rows[1].measured.interval, "a ratio of means"


def test_points_of_device_time_come_from_the_rows_of_prefetch_and_pretokenize() -> None:
    busy = {"prefetch": 0.5, "pretokenize": 0.9}
    rows = tuple(
        replace(row, measures={"device_utilization": Measure("device_utilization", busy[row.fix], "1")})
        if row.kind in ("without", "instead") and row.fix in busy
        else row
        for row in ladders.ladder().rows
    )
    cell = cells(ladders.with_ladder(replace(ladders.ladder(), rows=rows)))[
        ("Pre-tokenization and prefetching, beside the other fixes", "")
    ]
    assert cell.text == "prefetch +38.4 points, pretokenize +1.6 points"


def test_thresholds_are_shown_without_a_ladder_for_the_language_model_alone() -> None:
    assert claims.claim_rows(ReportInput.from_results(samples.comparison())) == ()
    found = replace(ladders.saying(trainer="reference_trainer.lm"), extensions={})
    rows = claims.claim_rows(ReportInput.from_results(found))
    assert [(row.what, row.side) for row in rows] == [
        (what, side) for what in ("Time of a token", "CPU of the host's threads") for side in ("as-found", "fixed")
    ]
    slow, fast, busy, _ = (row.measured for row in rows)
    assert (slow.text, slow.unit) == ("47.2", "µs")
    assert slow.note.endswith("; not judged")
    assert fast.sort is not None
    assert fast.sort < 1e-6
    on_gpu = replace(ladders.saying(trainer="reference_trainer.lm", device="cuda"), extensions={})
    assert claims.claim_rows(ReportInput.from_results(on_gpu))[0].measured.note.endswith("; met")
    assert busy.note == "of one core: missed; 51.0% of the machine's 2: missed"


def test_what_was_not_measured_is_no_zero() -> None:
    empty = replace(samples.empty_comparison(), extensions={"ladder": ladders.ladder()})
    missing = {what: cell for (what, _), cell in cells(empty).items() if "phase" not in what}  # those are of the ladder
    assert all(cell.missing and not cell.text for cell in missing.values())
    report_input = ladders.with_ladder()
    for side in (replace(report_input.sides[0], detail=None), replace(report_input.sides[0], runs=(), detail=None)):
        assert cells(replace(report_input, sides=(side, report_input.sides[1])))[BATCH].missing
