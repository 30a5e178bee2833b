"""The gate on a GPU: an added wait is named with its line, more work is found, a turn ends with an idle device."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from profiler.__main__ import main

pytestmark = pytest.mark.gpu

TRAIN = """
import sys
import torch

torch.manual_seed(0)
width, more = int(sys.argv[1]), int(sys.argv[2])
features, target = torch.randn(64, width, device="cuda"), torch.randn(64, width, device="cuda")
model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(8))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    for _ in range(4 + more):
        loss = (model(features) - target).square().mean()
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    pass
"""
LINE = TRAIN[: TRAIN.index("    pass")].count("\n") + 1


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def test_an_added_item_is_a_sync_with_its_line(here: Path) -> None:
    words = ["check", "--baseline", "b.json", "--set", "steps=10", "--set", "warmup=3"]
    command = ["--", sys.executable, "train.py", "256", "0"]
    assert main([*words, "--update", *command]) == 0
    (here / "train.py").write_text(TRAIN.replace("    pass", "    loss.item()"))
    assert main([*words, "--out", "out", *command]) == 1
    sentence = json.loads((here / "out" / "check.json").read_text())["sentence"]
    assert f"train.py:{LINE}" in sentence, sentence


def test_more_work_on_the_device_fails(here: Path) -> None:
    before, after = (f"{sys.executable} train.py 2048 {more}" for more in (0, 2))
    assert main(["check", before, after, "--set", "explain=false", "--out", "out"]) == 1
    found = json.loads((here / "out" / "check.json").read_text())
    assert found["throughput"]["state"] == "FAIL"
    turn = found["throughput"]["rounds"][0]["turns"][0]
    assert len(turn["steps"]) >= 10, "a turn of a program with a device's queue has ten steps at least"
