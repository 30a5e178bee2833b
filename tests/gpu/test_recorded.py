"""A training program on a GPU: it says what it says without us, and its waits are counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from profiler.record.launch import record
from profiler.run.load import load
from profiler.run.model import RunSpec

pytestmark = pytest.mark.gpu

ROUNDS = 20
PROGRAM = f"""
import torch
torch.manual_seed(0)
layer = torch.nn.Linear(8, 8, device="cuda")
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
x = torch.ones(4, 8, device="cuda")
for _ in range({ROUNDS}):
    loss = layer(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{{loss.item():.3f}}", len(x[x > 0]))
"""


@pytest.mark.parametrize("flags", [(), ("-W", "error::UserWarning")], ids=["plain", "warnings are errors"])
def test_a_program_on_a_gpu_says_what_it_says_without_us(tmp_path: Path, flags: tuple[str, ...]) -> None:
    argv = (sys.executable, *flags, "-c", PROGRAM)
    bare = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert bare.returncode == 0, bare.stdout
    info = record(RunSpec(argv, tmp_path / "run", "standard", quiet=True))
    assert (tmp_path / "run" / "output.log").read_text() == bare.stdout
    assert info.exit_code == 0
    run = load(tmp_path / "run")
    totals = {run.names[number]: 0.0 for number in run.values["name"].tolist()}
    for row in run.values:
        totals[run.names[row["name"]]] += float(row["value"])
    # the last batch of counts comes behind the last boundary
    assert totals["syncs"] >= 2 * (ROUNDS - 1), totals
    assert totals["debug_syncs"] >= totals["debug_syncs_seen"] >= ROUNDS - 1, totals
