"""1,024 calls of .item() in every step. Expected: Python (or the calls themselves), in summarize().

The truth is the thread's CPU time in summarize(); CURED=1 calls .tolist() once.
"""

import os

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(1024, 32), torch.randn(1024)


def summarize(errors: torch.Tensor) -> float:
    if os.environ.get("CURED"):
        return max(errors.tolist())
    worst = 0.0
    for error in errors:
        worst = max(worst, error.item())
    return worst


def train(steps: int) -> None:
    truth = Truth()
    reading = truth.part("python")
    for _ in range(steps):
        errors = (model(x).squeeze(1) - y) ** 2
        with reading:
            summarize(errors.detach())
        optimizer.zero_grad()
        errors.mean().backward()
        optimizer.step()
    truth.end(steps)


train(1500)
