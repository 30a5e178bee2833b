"""Fixed over as-found, tokens/s on the host device, for growing models: what each size leaves to be gained."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reference_trainer.lm.model import PRESETS, ModelConfig
from tests.benchmarks.measure import ratio

PAIRS = int(os.environ.get("PAIRS", "5"))
SIZES = [(32, 256), (64, 256), (64, 512), (64, 1024), (128, 2048), (256, 4096)]
SECONDS = 2.0


@pytest.mark.parametrize(("width", "vocabulary"), SIZES)
def test_ratio(width: int, vocabulary: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from reference_trainer.lm.loop import train
    from reference_trainer.lm.settings import Settings

    monkeypatch.setitem(PRESETS, "sized", ModelConfig(width, 2, vocabulary))
    speeds: dict[str, list[float]] = {"as-found": [], "fixed": []}
    for pair in range(PAIRS):
        for variant in sorted(speeds, reverse=bool(pair % 2)):
            settings = Settings(variant=variant, preset="sized", device="host", seconds=SECONDS)
            speeds[variant].append(train(settings).tokens_per_s)
    seen = ratio(speeds["fixed"], speeds["as-found"])
    found, fixed = (sorted(speeds[name])[PAIRS // 2] for name in ("as-found", "fixed"))
    print(f"\nwidth {width}, vocabulary {vocabulary}: {found:,.0f} -> {fixed:,.0f} tokens/s, ratio {seen}")
    assert seen.low > 1, f"the cure does not help at this size: {seen}"
