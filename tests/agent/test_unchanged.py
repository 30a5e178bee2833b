"""A real training with and without us: the same losses bit for bit, the same output and exit code; and its steps."""

from __future__ import annotations

import subprocess
import sys
from contextlib import chdir
from typing import Any

import pytest

from profiler.record.launch import record
from profiler.report.text import step_text
from profiler.run.load import load
from profiler.run.model import Run, RunSpec
from tests.fakes.programs import script

STEPS = 12
TRAIN = """
import argparse, sys
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed-file")
    args = parser.parse_args()
    torch.manual_seed(int(open(args.seed_file).read()))
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
    data = TensorDataset(torch.randn(4 * args.steps, 8), torch.randn(4 * args.steps, 1))
    for number, (x, y) in enumerate(DataLoader(data, batch_size=4, shuffle=True)):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        print(number, loss.item().hex(), float(norm).hex(), int(norm > 0.5), x[x > 0].sum().item().hex())
    print(sum(p.double().sum() for p in model.parameters()).item().hex(), len(optimizer.state_dict()["state"]))
    sys.stderr.write("done\\n")
    sys.exit(3)

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module", params=["standard", pytest.param("light", marks=pytest.mark.slow)])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Run]:
    """(exit code and output without us, the same with us, the run)"""
    folder = tmp_path_factory.mktemp("train")
    script(folder, TRAIN)
    (folder / "seed.txt").write_text("7")
    argv = (sys.executable, "train.py", "--steps", str(STEPS), "--seed-file", "seed.txt")
    with chdir(folder):
        bare = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        info = record(RunSpec(argv=argv, out=folder / "run", level=request.param, collectors=(), quiet=True))
        output, _ = bare.communicate(timeout=120)
    with_us = info.exit_code, (folder / "run" / "output.log").read_bytes()
    return (bare.returncode, output), with_us, load(folder / "run")


def test_losses_output_and_exit_code_are_the_same(both: tuple[Any, Any, Run]) -> None:
    without, with_us, _ = both
    assert with_us == without
    assert without[0] == 3
    assert without[1].count(b"0x") > 3 * STEPS


def test_its_steps_are_recorded(both: tuple[Any, Any, Run]) -> None:
    run = both[2]
    assert run.problems == ()
    assert len(run.steps) == STEPS - 1, "the first begins before any boundary"
    assert "AdamW (train.py:14)" in step_text(run.step)
    assert run.info.facts["device"] == "cpu"
    assert run.info.facts["torch"]
    names = {run.names[number] for number in run.regions["name"]}
    assert names >= {"optimizer", "backward"} if run.info.level == "standard" else not names
