"""An optimizer that updates 600 small parameters one by one. Expected: the update: optimizer.step().

The truth is the time in optimizer.step() by the script's clock; CURED=1 uses the fused update.
"""

import os

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(24, 24) for _ in range(300)))
cured = bool(os.environ.get("CURED"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=cured, foreach=False)
x, y = torch.randn(32, 24), torch.randn(32, 24)


def train(steps: int) -> None:
    truth = Truth()
    updating = truth.part("optimizer")
    for _ in range(steps):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        with updating:
            optimizer.step()
    truth.end(steps)


train(100)
