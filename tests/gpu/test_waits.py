"""Virtual devices count the waits that CUPTI records on a real GPU, statement by statement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.exact.waiting_statements import STATEMENTS, run_annotated, traced_waits

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
AGREE = 0.95
"""Least share of the statements with the same number of waits. How often some operations wait depends on the version of
CUDA's libraries."""


def test_virtual_waits_are_those_of_the_gpu(tmp_path: Path) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        run_annotated()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    recorded = traced_waits(json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"])
    assert recorded.keys() == STATEMENTS.keys()
    counting = subprocess.run(
        [sys.executable, "-m", "tests.exact.waiting_statements"],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    counted = json.loads(counting.stdout)
    different = {name: (counted[name], recorded[name]) for name in STATEMENTS if counted[name] != recorded[name]}
    print(f"{len(STATEMENTS) - len(different)} of {len(STATEMENTS)} statements agree; virtual, CUPTI: {different}")
    assert len(different) <= (1 - AGREE) * len(STATEMENTS), different
