"""A checkpoint after every 5th step. Expected: writing checkpoints, in save().

The truth is the time in torch.save by the script's clock; CURED=1 writes one at the end.
"""

import os
import tempfile
from pathlib import Path

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(768, 768) for _ in range(4)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
x, y = torch.randn(64, 768), torch.randn(64, 768)


def save(folder: str, step: int) -> None:
    torch.save(
        {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, Path(folder, "last.pt")
    )


def train(steps: int, folder: str) -> None:
    every = steps if os.environ.get("CURED") else 5
    truth = Truth()
    saving = truth.part("checkpoint")
    for step in range(1, steps + 1):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0:
            with saving:
                save(folder, step)
    truth.end(steps)


with tempfile.TemporaryDirectory() as folder:
    train(100, folder)
