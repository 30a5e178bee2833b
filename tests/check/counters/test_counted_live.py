"""Real training, driven by turns: all processes of a program count the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from profiler.check.counters.counted import counted
from profiler.check.model import Counted
from profiler.check.speed.controlled_process import Program, measured_spans
from profiler.check.speed.counting import record_steps
from profiler.run.load import load
from tests.fakes.programs import ROOT

TRAIN = """
import torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        x = torch.full((4,), float(i))
        return x / x.sum().clamp(min=1).item()

if __name__ == "__main__":
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for number, batch in enumerate(DataLoader(Data(), batch_size=8, num_workers=2)):
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 10 == 0:
            print(loss.item())
"""
TRAINER = ("-m", "reference_trainer.lm", "--variant", "fixed", "--device", "host", "--max-chunks", "100000")
PLAIN = ("--warmup-seconds", "0")
"""A warm-up that is told in seconds ends at another chunk each time."""


def processes(argv: tuple[str, ...], folder: Path, out: Path, number: int) -> list[Counted]:
    program = Program("candidate", (sys.executable, *argv), folder, hooked=argv[0] != "-m")
    paths = record_steps(program, out, [f"{folder.name}-{one}" for one in range(number)])
    return [counted(load(path), measured_spans(path), folder=str(folder)) for path in paths]


@pytest.mark.slow
def test_two_processes_of_a_program_with_loader_workers_count_the_same(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    base = processes(("train.py",), tmp_path, tmp_path / "runs", 2)
    assert base[0] == base[1], "two processes of the same program"
    assert base[0].totals["would_sync"] == 2.0, "every 10th of 20 steps"
    assert base[0].workers["would_sync_in_loader"] == 160.0, "8 samples a batch"
    assert not {"syncs", "h2d", "launches"} & {*base[0].totals, *base[0].workers}, "there is no device"


@pytest.mark.slow
def test_the_reference_trainer_counts_the_same_each_time(tmp_path: Path) -> None:
    found = processes((*TRAINER, *PLAIN), ROOT, tmp_path, 3)
    assert found[0] == found[1] == found[2]
    assert found[0].totals["syncs"] == found[0].steps == 20
