"""The ladder section: the waterfall's levels and the table. tests/approval holds its sentences, gaps and reasons."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from profiler.analyse.model.comparison import Ratio
from profiler.report import blocks
from profiler.report.build import build_report
from reference_trainer.report.ladder import Ladder
from reference_trainer.report.ladder_section import PLUGIN
from tests.report import ladders, samples
from tests.report.test_build import of_kind


def stairs(ladder: Ladder) -> dict[str, blocks.Stair]:
    [waterfall] = of_kind(ladders.with_ladder(ladder), "ladder", blocks.Waterfall)
    return {stair.label: stair for stair in waterfall.stairs}


def test_only_a_comparison_with_a_ladder_has_the_section() -> None:
    assert samples.build_section(PLUGIN, samples.comparison()) is None
    assert samples.build_section(PLUGIN, samples.analysis()) is None
    keys = [section.key for section in build_report(ladders.with_ladder()).sections]
    assert keys[2] == "ladder"


def test_levels_climb_by_the_paired_factors() -> None:
    start, *climbed, total = stairs(ladders.ladder()).values()
    assert (start.kind, start.begin, start.end) == ("start", None, ladders.BASE)
    assert (total.kind, total.begin, total.end, total.text) == ("total", ladders.BASE, climbed[-1].end, "59.6×")
    level = ladders.BASE
    for stair, (*_, added, _) in zip(climbed, ladders.CURES.values(), strict=True):
        assert stair.begin == level
        assert stair.low == pytest.approx(level * added * math.exp(-0.03))
        level = stair.end
        assert level == pytest.approx(stair.begin * added)
    kinds = {stair.label: stair.kind for stair in climbed}
    assert [kinds[f"+ {fix}"] for fix in ("batch-tokenize", "pooled", "zero-copy", "async")] == [
        "same", "same", "loss", "gain",
    ]  # fmt: skip


def test_a_row_that_was_not_measured_breaks_no_other() -> None:
    missing = ladders.none("not comparable")
    rows = (
        replace(row, gain=missing, total=missing) if (row.kind, row.fix) == ("cumulative", "async") else row
        for row in ladders.ladder().rows
    )
    result = stairs(replace(ladders.ladder(), rows=tuple(rows)))
    assert (result["+ async"].text, result["+ async"].end) == ("not measured", None)
    assert result["+ batch-embed"].begin is None
    assert result["+ batch-recurrence"].begin == result["+ batch-embed"].end


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_an_interrupted_ladder_begins_with_a_warning(rounds: int) -> None:
    interrupted = replace(ladders.ladder(), rounds=rounds, interrupted=True)
    section = samples.build_section(PLUGIN, ladders.with_ladder(interrupted))
    assert section is not None
    assert section.brief[0] == section.blocks[0]
    assert isinstance(section.blocks[0], blocks.Callout)
    assert section.blocks[0].tone == "warning"


def test_the_prediction_for_a_fix_that_is_left_out_stands_below_what_was_measured() -> None:
    predicted = Ratio("tokens_per_s", 1.08, 1.08, 1.31, 1, different=True)
    rows = (
        replace(row, predicted=predicted) if (row.kind, row.fix) == ("without", "async") else row
        for row in ladders.ladder().rows
    )
    found = ladders.with_ladder(replace(ladders.ladder(), rows=tuple(rows)))
    cells = {row[0].text: row[4] for row in of_kind(found, "ladder", blocks.Table)[0].rows}
    assert cells["async"].note == "left out with prefetch and quiet-logging; predicted 1.08× (1.08 to 1.31)"
    assert "predicted" not in cells["batch-embed"].note
