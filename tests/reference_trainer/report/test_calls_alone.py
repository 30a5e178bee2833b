"""The ratio with the device's queue and without it, and which part of a step waits for the device."""

from __future__ import annotations

from dataclasses import replace

from profiler.analyse.compare.ratios import SideRuns
from profiler.analyse.model import Analysis, Measure
from profiler.report import blocks
from profiler.report.build import build_report
from reference_trainer.report.calls_alone import (
    LADDER,
    NAME,
    PLUGIN,
    CallsAlone,
    measure_calls_alone,
)
from tests.fakes.ladders import light_run
from tests.report import samples

SIDES, ALONE = ("as-found", "fixed"), ("as-found, calls alone", "fixed, calls alone")


def side(label: str, *speeds: float, detail: Analysis | None = None) -> SideRuns:
    return SideRuns(label, "", tuple(map(light_run, speeds)), detail)


def measured(**breakdown: float) -> CallsAlone:
    """As found 100 tokens/s with the queue and 125 without, fixed 5,000 and 10,000."""
    parts = {name: Measure(name, value, "s") for name, value in breakdown.items()}
    runs = [
        side(SIDES[0], 100, 102, detail=replace(light_run(100), breakdown=parts) if parts else None),
        side(SIDES[1], 5000, 5000),
        side(ALONE[0], 125, 125),
        side(ALONE[1], 10_000, 10_000),
    ]
    calls_alone = measure_calls_alone(SIDES, ALONE, {each.label: each for each in runs})
    assert calls_alone is not None
    return calls_alone


def test_the_parts_of_a_step_are_shares_of_the_time_with_a_core() -> None:
    sentence = measured(sync=0.1, copy=0.2, launch=0.2, python=0.4, input=0.1, core=9.0).verdict_sentence()
    assert sentence.endswith(
        "it is 80.0× (95% 80.0 to 80.0); a step of as-found is 10% waiting for the device, 40% calls to the device, "
        "50% Python."
    )


def test_the_first_screen_of_the_bundled_pair_leads_to_the_ladder() -> None:
    comparison = replace(samples.comparison(), extensions={NAME: measured(sync=1.0)})
    first = build_report(comparison).first
    assert first is not None
    assert first.actions[-1].command.endswith(f" {LADDER}")


def test_without_a_breakdown_only_the_ratio_is_told() -> None:
    assert measured().verdict_sentence().endswith("it is 80.0× (95% 80.0 to 80.0).")


def test_the_section_has_a_row_with_the_queue_and_one_without() -> None:
    comparison = replace(samples.comparison(), extensions={NAME: measured(sync=1.0)})
    section = samples.build_section(PLUGIN, comparison)
    assert section is not None
    text, table = section.blocks
    assert isinstance(text, blocks.Text)
    assert isinstance(table, blocks.Table)
    assert text == blocks.Text(measured(sync=1.0).verdict_sentence())
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["with its queue", "101", "5.00k", "49.5"],
        ["calls alone", "125", "10.0k", "80.0"],
    ]
    assert samples.build_section(PLUGIN, samples.comparison()) is None, "a comparison without such runs"


def test_a_side_that_did_not_run_without_the_queue_has_no_ratio() -> None:
    runs = {label: side(label, 100) for label in (*SIDES, ALONE[0])}
    assert measure_calls_alone(SIDES, ALONE, runs) is None
    assert measure_calls_alone(SIDES, (), runs) is None


def test_what_was_not_recorded_is_a_part_too() -> None:
    """The parts sum to the whole step."""
    calls_alone = measured(sync=0.1, python=0.4, unattributed=0.5)
    assert sum(calls_alone.parts.values()) == 1.0
    comparison = replace(samples.comparison(), extensions={NAME: calls_alone})
    section = samples.build_section(PLUGIN, comparison)
    assert section is not None
    assert "40% Python, 50% unknown." in str(section.blocks[0])


def test_runs_that_failed_are_in_the_method() -> None:
    failed = CallsAlone((), failed="it exited with 1 and printed nothing")
    assert list(failed.method_sentences()) == [
        "The runs without the device's queue failed: it exited with 1 and printed nothing."
    ]
    assert samples.build_section(PLUGIN, replace(samples.comparison(), extensions={NAME: failed})) is None
