"""Sixteen threads for operators on few cores. Expected: too many threads for the cores; no all-clear.

The truth is the gain of CURED=1, which uses one thread.
"""

import os

import torch
from truth import Truth

torch.set_num_threads(1 if os.environ.get("CURED") else 16)
torch.manual_seed(0)
model = torch.nn.Sequential(*(layer for _ in range(8) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(256, 256), torch.randn(256, 256)


def train(steps: int) -> None:
    truth = Truth()
    for _ in range(steps):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    truth.end(steps)


train(50)
