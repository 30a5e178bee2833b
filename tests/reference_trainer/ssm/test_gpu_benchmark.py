"""The GPU's benchmark of the sweep, on a CPU and small: its figures are of what the sweeps said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.bench_gpu_sweep import summed_up
from tests.fakes.programs import ROOT


def side(wall: float, total: float, used: float | None) -> dict:
    return {"wall_s": wall, "total_s": total, "devices": {"cuda:0": {"utilisation": used}}}


def test_pairs_are_summed_up() -> None:
    pairs = [
        {"as-found": side(20, 30, 0.1), "fixed": side(2, 10, 0.5)},
        {"as-found": side(20, 30, 0.3), "fixed": side(2, 10, None)},
    ]
    result = summed_up(pairs)
    ten = pytest.approx(10)
    assert result["times_faster"] == {"value": ten, "low": ten, "high": ten, "pairs": 2}
    assert result["times_faster_with_start"]["value"] == pytest.approx(3)
    assert result["utilisation_as-found"] == {"cuda:0": pytest.approx(0.2)}
    assert result["utilisation_fixed"] == {"cuda:0": 0.5}
    assert summed_up(pairs[:1])["times_faster"] == {"value": ten, "low": None, "high": None, "pairs": 1}


@pytest.mark.slow
def test_it_runs_on_a_cpu_too(tmp_path: Path) -> None:
    out = tmp_path / "sweep.json"
    options = ("--device", "cpu", "--student-dims", "4", "--num-seeds", "2", "--pairs", "1", "--out", str(out))
    command = [sys.executable, "tests/benchmarks/bench_gpu_sweep.py", *options]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    result = json.loads(out.read_text(encoding="utf-8"))
    [pair] = result["pairs"]
    assert {item["done"] for item in pair.values()} == {4}
    assert pair["as-found"]["points"] == pair["fixed"]["points"] > 0
    assert result["times_faster"]["value"] > 0
