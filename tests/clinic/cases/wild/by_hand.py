"""Updates by hand, without torch.optim or a loader. Expected: steps by backward(); Python, in augment().

The truth is the thread's CPU time in augment(); CURED=1 leaves it out.
"""

import os

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Linear(512, 512)
x = torch.randn(512, 512)


def augment(step: int) -> int:
    value = step
    for _ in range(120_000):
        value = (value * 1103515245 + 12345) % 2147483648
    return value


def train(steps: int) -> None:
    truth = Truth()
    python = truth.part("python")
    for step in range(steps):
        if not os.environ.get("CURED"):
            with python:
                augment(step)
        model.zero_grad()
        torch.nn.functional.mse_loss(model(x), x).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
    truth.end(steps)


train(250)
