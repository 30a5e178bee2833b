"""The modeled figures stand beside the measured ones, for sides that ran on a card that the model knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

import profiler
from profiler.report import blocks
from profiler.report.build import build_report
from reference_trainer.lm.model import PRESETS
from reference_trainer.lm.roofline import facts
from reference_trainer.report import roofline
from tests.recorded.builders import MS, timeline
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
    assert (first[0], second[0], len(others)) == ("time per token", "device busy", 4)
    assert first[1] == "181 ns (181 ns, 307 ns)"
    assert second[1] == "100.0% (100.0%, 59.0%)"
    speed = comparison.sides[0].runs[0].measures["tokens_per_s"].value
    assert speed
    assert first[2]
    assert others[0][:2] == ["share of the card's peak", "92.9% (92.9%, 54.9%)"]


def test_what_was_not_measured_has_a_reason() -> None:
    stated = facts(PRESETS["gpu"], "NVIDIA B200", "fp32", 3000)
    comparison = ladders.saying(roofline=stated, variant="as-found")
    sides = tuple(replace(side, measures={}, detail=None) for side in comparison.sides)
    section = samples.build_section(roofline.PLUGIN, replace(comparison, sides=sides))
    assert section is not None
    [table] = [block for block in section.blocks if isinstance(block, blocks.Table)]
    assert all(row[2].missing and not row[2].text for row in table.rows)


@pytest.mark.parametrize(
    ("dtype", "learn", "share"), [("fp32", False, "56%"), ("bf16", False, "3.8%"), ("bf16", True, "11%")]
)
def test_a_busy_card_stands_beside_its_share_of_the_peak(dtype: str, learn: bool, share: str) -> None:
    """30,000 tokens in 10 ms on a card that is busy for all of them."""
    label = "NVIDIA H100 80GB HBM3"
    stated = facts(PRESETS["gpu"], label, dtype, 3000, learn=learn)
    text = "; ".join(f"step {10 * i} {10 * i + 10} tokens=30000" for i in range(5))
    text += "; counter device_busy_ns " + " ".join([str(10 * MS)] * 5)
    analysis = profiler.analyse_run(timeline(text, tick=MS, device="cuda", device_label=label, roofline=stated))
    busy = f"busy 100% of the time, at {share} of the card's peak"
    assert analysis.verdict == f"The {label} was {busy}: the host is not what limits this run."
    first = build_report(analysis).first
    assert first is not None
    assert first.headline.before == f"The {label} is {busy}"


def test_a_run_that_states_no_peak_has_no_share_of_it() -> None:
    for stated in (
        None,
        {},
        {"flops_per_token": 1e6, "peak_flops": 0},
        {"flops_per_token": "many", "peak_flops": 1e12},
    ):
        run = timeline("step 0 10 tokens=100; step 10 20 tokens=100", tick=MS, device="cuda", roofline=stated)
        assert "peak_share" not in profiler.analyse_run(run).measures
