"""Saves what it has and ends well when it is told to stop, as schedulers of shared machines tell it."""

import os
import signal
import sys
import tempfile

import torch
from torch import nn

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))
optimizer = torch.optim.AdamW(model.parameters())
inputs = torch.randn(128, 64)
losses = []


def save_and_leave(number, frame) -> None:
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), os.path.join(folder, "last.pt"))
    print(f"signal {number} after {len(losses)} steps, loss {losses[-1]:.6f}")
    sys.exit(0)


signal.signal(signal.SIGTERM, save_and_leave)
while True:
    loss = (model(inputs) - inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if len(losses) == steps:
        os.kill(os.getpid(), signal.SIGTERM)  # in place of the scheduler
