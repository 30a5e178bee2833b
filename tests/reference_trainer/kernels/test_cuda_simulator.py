"""Every CUDA kernel in Numba's simulator against NumPy, launched by the CUDA device with its buffers on the CPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reference_trainer.kernels import cases, checks

ROOT = Path(__file__).parents[3]
NAMES = [
    *map(checks.name, cases.FEW),
    *(cases.name(way, case) for way in cases.WAYS for case in way.few),
    "forwards",
    "graphed chunks",
    "learning",
    "graph",
    "benchmarks",
    "empty",
]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed")


@pytest.fixture(scope="module")
def errors() -> dict[str, str]:
    """Of every check its error, empty where it passed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.reference_trainer.kernels.simulate"],
        cwd=ROOT,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return {result["name"]: result["error"] for result in results}


@pytest.mark.parametrize("name", NAMES)
def test_in_the_simulator(errors: dict[str, str], name: str) -> None:
    assert name in errors, f"not run; these were: {', '.join(errors)}"
    assert not errors[name], errors[name]
