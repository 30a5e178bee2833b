"""Smaller chunks: the sentence follows the numbers, wherever tokens a second go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiler.analyse.model import Measure, Ratio
from profiler.report import blocks
from profiler.report.model import ReportInput
from reference_trainer.report.ladder import Ladder
from reference_trainer.report.quick_fix import PLUGIN, said, sizes
from tests.fakes.sentences import note
from tests.report import ladders, samples
from tests.report.test_build import of_kind

ONE_ROUND = Ratio("tokens_per_s", 0.97, None, None, 1, different=False, reason=note("one pair: no interval"))


def sweep(**factors: Ratio) -> Ladder:
    """The made-up ladder with other gains: t375=... for chunks of 375 tokens."""
    found = ladders.ladder()
    rows = (
        replace(row, gain=factors[f"t{row.tokens_per_chunk}"])
        if row.kind == "chunk size" and f"t{row.tokens_per_chunk}" in factors
        else row
        for row in found.rows
    )
    return replace(found, rows=tuple(rows))


def sentence(found: Ladder) -> str:
    return said(sizes(found, ReportInput.from_results(ladders.with_ladder(found))))


def test_no_section_without_a_ladder() -> None:
    assert samples.build_section(PLUGIN, samples.comparison()) is None


def test_time_falls_and_throughput_stays() -> None:
    assert sentence(ladders.ladder()) == (
        "A chunk of 187 tokens instead of 3,000 takes 4.83 ms instead of 76.3 ms: 1/15.8 the time for 1/16.0 the "
        "tokens. In tokens a second no difference was seen at any size (0.985× to 1.00×, intervals within 10%): "
        "progress shows sooner, training is no faster."
    )


def test_throughput_that_moves_is_said_to_move() -> None:
    text = sentence(sweep(t375=ladders.gain(0.8), t187=ladders.gain(0.6)))
    assert text.endswith(
        "Tokens a second do change: 0.800× at 375, 0.600× at 187 tokens a chunk; no difference was seen at "
        "1,500 and 750 "
        "(0.996× to 1.00×, intervals within 10%)."
    )
    assert "no faster" not in text
    all_of_them = {f"t{size}": ladders.gain(1.5) for size in (1500, 750, 375, 187)}
    assert sentence(sweep(**all_of_them)).endswith("1.50× at 187 tokens a chunk.")


def test_wide_intervals_say_nothing() -> None:
    wide = ladders.gain(0.801, 0.7)
    text = sentence(sweep(t375=wide))
    assert text.endswith(
        "In tokens a second no difference was seen at 1,500, 750 and 187 (0.985× to 1.00×, intervals within 10%): "
        "progress shows sooner, training is no faster there; at 375 the runs spread too widely to say "
        "(0.801×, 95% 0.398 to 1.61)."
    )
    everywhere = sentence(sweep(t1500=wide, t750=wide, t375=wide, t187=wide))
    assert everywhere.endswith("0.801×; the runs of every size spread too widely to say whether they change.")
    assert "no faster" not in everywhere
    moved = sentence(sweep(t1500=ladders.gain(0.5), t375=wide))
    assert "do change: 0.500× at 1,500 tokens a chunk; no difference was seen at 750 and 187" in moved
    assert moved.endswith("at 375 the runs spread too widely to say (0.801×, 95% 0.398 to 1.61).")


def test_a_smaller_chunk_that_takes_longer_is_no_fraction() -> None:
    found = ladders.ladder()
    slow = {"step_time": Measure("step_time", 0.1, "s")}
    rows = (
        replace(row, measures={**row.measures, **slow}) if row.tokens_per_chunk == 187 else row for row in found.rows
    )
    assert "takes 100 ms instead of 76.3 ms: 1.31× the time for 1/16.0" in sentence(replace(found, rows=tuple(rows)))


def test_one_round_is_no_proof() -> None:
    found = sweep(t1500=ONE_ROUND, t750=ONE_ROUND, t375=ONE_ROUND, t187=ONE_ROUND)
    assert sentence(found).endswith(
        "Tokens a second come to 0.970×; one round has no interval that could tell a change from chance."
    )


def test_what_was_not_measured_has_its_reason() -> None:
    gone = ladders.none("the program failed")
    found = sweep(t1500=gone, t750=gone, t375=gone, t187=gone)
    assert sentence(found).endswith("What becomes of tokens a second was not measured: the program failed.")
    rows = of_kind(ladders.with_ladder(found), "quick-fix", blocks.Table)[0].rows
    assert [row[3].missing for row in rows] == ["", *["the program failed"] * 4]


@pytest.mark.parametrize("kept", [("baseline",), ()])
def test_without_other_sizes_there_is_a_gap(kept: tuple[str, ...]) -> None:
    found = replace(ladders.ladder(), rows=tuple(row for row in ladders.ladder().rows if row.kind in kept))
    gaps = of_kind(ladders.with_ladder(found), "quick-fix", blocks.NotMeasured)
    assert [gap.reason for gap in gaps] == ["the ladder has no row of another chunk size"]


def test_another_trainer_has_no_chunks() -> None:
    assert samples.build_section(PLUGIN, ladders.saying(trainer="reference_trainer.ssm")) is None


def test_table_and_panels_hold_every_size_once() -> None:
    """A size that is as-found's own shares its row."""
    found = ladders.ladder()
    again = replace(found.rows[0], kind="chunk size", label="3,000 tokens a chunk")
    comparison = ladders.with_ladder(replace(found, rows=(*found.rows, again)))
    table = of_kind(comparison, "quick-fix", blocks.Table)[0]
    assert [row[0].text for row in table.rows] == ["3,000", "1,500", "750", "375", "187"]
    assert [row[0].note for row in table.rows] == ["as found", "", "", "", ""]
    assert table.rows[0][3].text == "baseline"
    time, speed = of_kind(comparison, "quick-fix", blocks.Lines)
    assert (time.y_label, speed.y_label) == ("ms", "tokens/s")
    for plot in (time, speed):
        curve = plot.panels[0].curves[0]
        assert curve.x == (187.0, 375.0, 750.0, 1500.0, 3000.0)
        assert all(low <= y <= high for low, y, high in zip(curve.low, curve.y, curve.high, strict=True))
    assert time.panels[0].curves[0].y[-1] == pytest.approx(1e3 * 3000 / ladders.BASE)


def test_as_found_without_a_stated_size_takes_it_from_the_program() -> None:
    found = ladders.ladder()
    unknown = replace(found, rows=(replace(found.rows[0], tokens_per_chunk=None), *found.rows[1:]))
    assert sentence(unknown).startswith("Chunks of 1,500, 750, 375, 187 tokens were tried.")
    comparison = ladders.with_ladder(unknown)
    run = comparison.sides[0].runs[0]
    told = replace(run, info=replace(run.info, facts={**run.info.facts, "tokens_per_chunk": 3000}))
    sides = (replace(comparison.sides[0], runs=(told, *comparison.sides[0].runs[1:])), *comparison.sides[1:])
    assert (
        next(size.tokens for size in sizes(unknown, ReportInput.from_results(replace(comparison, sides=sides)))) == 3000
    )
