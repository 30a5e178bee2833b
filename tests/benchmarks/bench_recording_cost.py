"""What recording costs the trainer, by the trainer's own clock, in interleaved pairs."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from tests.benchmarks.measure import Interval, interleaved, ratio, trainer

PAIRS = int(os.environ.get("PAIRS", "10"))
MOST = {"as-found": 0.05, "fixed": 0.02}  # share of tokens/s that a light recording may take


def speeds(folder: Path, variant: str, one: str | None, other: str | None, pairs: int) -> Interval:
    """Tokens/s at the level `one` over those at `other`; None: bare."""
    options = ("--variant", variant, "--device", "host", "--seconds", "2")

    def measure(level: str | None, pair: int) -> float:
        return trainer(folder, f"{pair}-{level}", *options, level=level)["tokens_per_s"]

    trainer(folder, "warm", *options)
    seen = interleaved({level: partial(measure, level) for level in (one, other)}, pairs)
    return ratio(seen[one], seen[other])


@pytest.mark.parametrize("variant", MOST)
def test_light_recording(variant: str, tmp_path: Path) -> None:
    seen = speeds(tmp_path, variant, "light", None, PAIRS)
    print(f"\n{variant}: tokens/s recorded at light over bare {seen}; allowed {1 - MOST[variant]:.2f}")
    assert seen.high >= 1 - MOST[variant], f"light recording costs more than {MOST[variant]:.0%}: {seen}"


@pytest.mark.parametrize("variant", MOST)
def test_standard_recording_is_printed(variant: str, tmp_path: Path) -> None:
    slowdown = speeds(tmp_path, variant, "light", "standard", max(2, PAIRS // 3))
    print(f"\n{variant}: the breakdown pass is {slowdown} times slower than light")
    assert slowdown.value > 0.5
