"""What counting costs: the time of a step over that of the bare script, in blocks that alternate."""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

import pytest

from tests.benchmarks.alternating import alternated
from tests.benchmarks.overhead import Configuration

PAIRS = int(os.environ.get("PAIRS", "12"))
TURN_S = 3.0
"""A step takes up to 0.3 s."""


@pytest.mark.parametrize("option", ["--virtual-cuda", "--count"])
@pytest.mark.parametrize(("layers", "width", "most"), [(2, 64, 2.0), (4, 256, 1.3)])
def test_counted_steps(layers: int, width: int, most: float, option: str, tmp_path: Path) -> None:
    size = {"OVERHEAD_LAYERS": str(layers), "OVERHEAD_WIDTH": str(width)}
    counted = Configuration(
        option,
        lambda script, out: (
            *(sys.executable, "-m", "profiler", "run", option, "--out", str(out), "--"),
            *(sys.executable, script),
        ),
        environment={**size, "OVERHEAD_DEVICE": "cuda" if option == "--virtual-cuda" else "cpu"},
    )
    bare = Configuration("bare", lambda script, _: (sys.executable, script), environment=size)
    ratios = alternated("transformer.py", counted, bare, tmp_path / "runs", PAIRS, turn_s=TURN_S)
    cost = statistics.median(ratios)
    print(f"\n{option}, {layers} layers of width {width}: {cost:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    assert cost <= most
