"""Claims: every one beside what was measured, with its side, the device named, gaps with their reasons."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model import Comparison, Measure
from profiler.report import blocks
from reference_trainer.report import claims as case
from reference_trainer.report.claims import PLUGIN
from tests.report import ladders, samples
from tests.report.test_build import of_kind


def cells(report_input: Comparison) -> dict[tuple[str, str], tuple[str, blocks.Cell]]:
    """(what, side or source) -> claimed, measured."""
    table = of_kind(report_input, "claims", blocks.Table)[0]
    return {(row[0].text, row[0].note): (row[1].text, row[2]) for row in table.rows}


def test_no_section_without_a_ladder() -> None:
    assert samples.build_section(PLUGIN, samples.comparison()) is None


def test_another_trainer_has_no_claims() -> None:
    assert samples.build_section(PLUGIN, ladders.saying(trainer="reference_trainer.ssm")) is None
    assert samples.build_section(PLUGIN, ladders.saying(trainer="reference_trainer.lm")) is not None


def test_every_claim_of_the_case_stands_beside_a_measure() -> None:
    found = cells(ladders.with_ladder())
    shown = {key: (claimed, cell.text + cell.unit) for key, (claimed, cell) in found.items()}
    assert shown[("Tokens a second", "as-found")] == ("20 tokens/s", "21.2ktokens/s")
    assert shown[("Tokens a second over as-found", "fixed")] == ("300×, hoped for", "49.8×")
    assert shown[("CPU of the host's threads", "as-found")] == ("100% of the machine", "102%")
    assert shown[("CPU of the host's threads", "fixed")] == ("10 to 15%, hoped for", "29%")
    assert shown[("Device busy", "as-found")] == ("10%", "5.1%")
    assert shown[("Device busy", "fixed")] == ("85 to 90%, hoped for", "88%")
    assert shown[("Syncs a chunk", "as-found")] == ("3,000, one after every token", "6,000")
    assert shown[("Copies a chunk", "as-found")][1] == "12,001"
    assert shown[("Allocations a chunk", "as-found")][1] == "12,004"
    assert shown[("Tokenization (input), share of the host's time", "as-found")][1] == "3.2%"
    assert shown[("Tokenization (input), share of the host's time", "fixed")][1] == "13.1%"
    assert shown[("Tokenization of 8 samples in one batch", "")] == (
        "45.3 ms",
        "one call a sample: 5.90 ms; the batch call was not timed in this run",
    )
    assert shown[("The same, a sample", "")] == (
        "5.7 ms",
        "one call a sample: 738 µs; the batch call was not timed in this run",
    )
    assert found[("Syncs a chunk", "as-found")][1].note == "fixed: 1"
    assert found[("CPU of the host's threads", "fixed")][1].note == "of one core; the machine has 2"


def test_the_source_and_the_device_are_named() -> None:
    report_input = ladders.with_ladder()
    assert of_kind(report_input, "claims", blocks.Table)[0].caption == (
        "Claimed by the case as reported, and measured on host device (CPU)"
    )
    assert "which is not a GPU" in of_kind(report_input, "claims", blocks.Text)[0].text


def test_on_a_gpu_nothing_is_said_of_the_host_device() -> None:
    report_input = ladders.with_ladder()
    sides = tuple(
        replace(
            side,
            runs=tuple(
                replace(run, info=replace(run.info, facts={"device": "cuda", "device_label": "SYNTHETIC GPU"}))
                for run in side.runs
            ),
        )
        for side in report_input.sides
    )
    text = of_kind(replace(report_input, sides=sides), "claims", blocks.Text)[0].text
    assert "SYNTHETIC GPU" in text
    assert "not a GPU" not in text


def test_tokenization_in_one_call_counts_where_a_row_of_it_was_broken_down() -> None:
    found = ladders.ladder()
    detail = samples.analysis()
    counted = Measure("tokenized_samples_per_step", 4.0, "1/step")
    part = {"input": Measure("input", 0.002, "s")}
    detail = replace(detail, measures={counted.name: counted}, breakdown=part)
    rows = tuple(replace(row, analysis=detail) if row.fixes == ("batch-tokenize",) else row for row in found.rows)
    cell = cells(ladders.with_ladder(replace(found, rows=rows)))[("Tokenization of 8 samples in one batch", "")][1]
    assert (cell.text, cell.unit) == ("4.00", "ms")
    assert cell.note.startswith("one call a chunk")


@pytest.mark.parametrize("what", ["Tokenization of 8 samples in one batch", "The same, a sample"])
def test_without_a_breakdown_or_a_count_of_samples_there_is_a_reason(what: str) -> None:
    report_input = ladders.with_ladder()
    first = report_input.sides[0]
    assert first.detail is not None
    uncounted = replace(first, detail=replace(first.detail, measures={}))
    cell = cells(replace(report_input, sides=(uncounted, report_input.sides[1])))[(what, "")][1]
    assert cell.missing == "the program does not say how many samples a chunk has"
    unbroken = replace(first, detail=None)
    found = cells(replace(report_input, sides=(unbroken, report_input.sides[1])))
    assert found[(what, "")][1].missing == "no breakdown pass was made of this side"
    share = found[("Tokenization (input), share of the host's time", "as-found")][1]
    assert share.missing == "no breakdown pass was made of this side"


def test_what_was_not_measured_is_no_zero() -> None:
    empty = replace(samples.empty_comparison(), extensions={"ladder": ladders.ladder()})
    assert all(cell.missing and not cell.text for _, cell in cells(empty).values())


def test_the_claims_agree_with_each_other() -> None:
    each = case.BATCH_TOKENIZE_S / case.BATCH_SAMPLES
    assert each == pytest.approx(case.SAMPLE_TOKENIZE_S, rel=0.01)
