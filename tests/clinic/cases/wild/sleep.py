"""The loop sleeps 20 ms a step, as one that limits its rate. Expected: waiting, in limit_rate(); not Python.

The truth is the time in limit_rate() by the script's clock; CURED=1 does not sleep.
"""

import os
import time

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(256, 512), torch.randn(256, 512)


def limit_rate() -> None:
    if not os.environ.get("CURED"):
        time.sleep(0.02)


def train(steps: int) -> None:
    truth = Truth()
    sleeping = truth.part("waiting")
    for _ in range(steps):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with sleeping:
            limit_rate()
    truth.end(steps)


train(250)
