"""Repeats of programs with loader workers, pinned batches, threads and ranks have equal counts.

REPEATS=20 runs each program 20 times.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import profiler
from profiler.analyse.timing.counts import site_counts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.is_available(), reason="virtual devices need a machine without a GPU"),
]

ROOT = Path(__file__).parents[2]
REPEATS = int(os.environ.get("REPEATS", "2"))
START = """
import os
import threading
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def train(model, batches):
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for x in batches:
        loss = model(x.to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


"""
LOADER = """
class Samples(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return (torch.full((16,), float(index)) * 2).clamp(max=9.0)


for epoch in range(2):
    train(model, DataLoader(Samples(), batch_size=8, num_workers=2, shuffle=True, pin_memory=PINNED))
"""
PROGRAMS = {
    "workers": LOADER.replace("PINNED", "False"),
    "pinned": LOADER.replace("PINNED", "True"),  # pinned by a thread on virtual devices, and not at all on the CPU
    "threads": """
def prepare(batches):
    for number in range(12):
        batches.append(torch.randn(8, 16).mul_(2.0).to(device))


batches, other = [], nn.Linear(16, 4).to(device)
helpers = [threading.Thread(target=prepare, args=(batches,)), threading.Thread(
    target=lambda: [other(torch.ones(4, 16, device=device)).sum().backward() for _ in range(12)]
)]
for helper in helpers:
    helper.start()
for helper in helpers:
    helper.join()
train(model, batches)
""",
    "ranks": """
distributed.init_process_group("nccl" if device == "cuda" else "gloo")
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = nn.parallel.DistributedDataParallel(model.to(device))
train(model, [torch.randn(8, 16) for _ in range(8)])
distributed.destroy_process_group()
""",
}


Key = tuple[str, str, str]
"""Each count has a kind, the name of an operator, and a line."""


def counts(name: str, option: str, folder: Path) -> dict[Key, list[Any]]:
    """What was counted before the first step, and in each step."""
    (folder / "train.py").write_text(START + PROGRAMS[name], encoding="utf-8")
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"] if name == "ranks" else []
    record = [sys.executable, "-m", "profiler", "run", *option.split(), "--out", str(folder / "run"), "--"]
    command = [*record, sys.executable, *ranks, str(folder / "train.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = site_counts(profiler.load(folder / "run"))
    assert any(count.mean for count in found)
    amounts: dict[Key, list[Any]] = {}
    for each in found:
        key = each.kind.name, each.name, str(each.site and each.site.line)
        amounts.setdefault(key, []).append((each.before, sorted(each.per_step.items())))
    return {key: sorted(values) for key, values in amounts.items()}


@pytest.mark.parametrize("option", ["--count", "--virtual-cuda 2"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_repeats_have_equal_counts(name: str, option: str, tmp_path: Path) -> None:
    first: dict[Key, list[Any]] = {}
    for number in range(REPEATS):
        folder = tmp_path / str(number)
        folder.mkdir()
        again = counts(name, option, folder)
        first = first or again
        keys = first.keys() | again.keys()
        assert {key: (first.get(key), again.get(key)) for key in keys if first.get(key) != again.get(key)} == {}
