"""The modeled figures stand beside the measured ones, for sides that ran on a card that the model knows."""

from __future__ import annotations

from dataclasses import replace

from profiler.report import blocks
from reference_trainer.lm.model import PRESETS
from reference_trainer.lm.roofline import facts
from reference_trainer.report import roofline
from tests.report import ladders, samples


def test_modeled_beside_measured() -> None:
    assert samples.build_section(roofline.PLUGIN, samples.comparison()) is None
    assert samples.build_section(roofline.PLUGIN, ladders.saying(roofline=None, variant="fixed")) is None
    stated = facts(PRESETS["gpu"], "NVIDIA B200", "fp32", 3000)
    comparison = ladders.saying(roofline=stated, variant="fixed")
    section = samples.build_section(roofline.PLUGIN, comparison)
    assert section is not None
    [table] = [block for block in section.blocks if isinstance(block, blocks.Table)]
    assert "B200 SXM" in table.caption
    first, second, *others = [[cell.text for cell in row] for row in table.rows]
    assert (first[0], second[0], len(others)) == ("time per token", "device busy", 2)
    assert first[1] == "181 ns (181 ns, 307 ns)"
    assert second[1] == "100.0% (100.0%, 59.0%)"
    speed = comparison.sides[0].runs[0].measures["tokens_per_s"].value
    assert speed
    assert first[2]


def test_what_was_not_measured_has_a_reason() -> None:
    stated = facts(PRESETS["gpu"], "NVIDIA B200", "fp32", 3000)
    comparison = ladders.saying(roofline=stated, variant="as-found")
    sides = tuple(replace(side, measures={}, detail=None) for side in comparison.sides)
    section = samples.build_section(roofline.PLUGIN, replace(comparison, sides=sides))
    assert section is not None
    [table] = [block for block in section.blocks if isinstance(block, blocks.Table)]
    assert all(row[2].missing and not row[2].text for row in table.rows)
