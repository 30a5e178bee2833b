"""Two ranks, of which only rank 0 writes a checkpoint after every 5th step. Expected: writing checkpoints on rank 0, in
save(); the other rank waits for it.

The truth is the time in torch.save by rank 0's clock; CURED=1 writes one at the end.
"""

import os
import tempfile
from pathlib import Path

import torch
from truth import Truth

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
layers = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
table = torch.nn.Embedding(60_000, 256)
model = torch.nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(128, 256)


def save(folder: str, step: int) -> None:
    torch.save({"step": step, "model": model.state_dict(), "table": table.state_dict()}, Path(folder, "last.pt"))


def train(steps: int, folder: str) -> None:
    every = steps if os.environ.get("CURED") else 5
    truth = Truth()
    saving, backward = truth.part("checkpoint"), truth.part("backward")
    for step in range(1, steps + 1):
        loss = torch.nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        with backward:
            loss.backward()
        optimizer.step()
        if step % every == 0 and rank == 0:
            with saving:
                save(folder, step)
    truth.end(steps)


with tempfile.TemporaryDirectory() as folder:
    train(250, folder)
torch.distributed.destroy_process_group()
