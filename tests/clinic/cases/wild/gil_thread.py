"""A second Python thread computes and holds the GIL. Expected: waiting for the GIL.

The truth is the gain of CURED=1, which does not start the thread; the stepping thread is off the core meanwhile.
"""

import os
import threading
import time

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(20)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(32, 32), torch.randn(32, 32)
done = threading.Event()


def statistics() -> None:
    total = 0
    while not done.is_set():
        for number in range(10_000):
            total += number * number % 7


def train(seconds: float) -> None:
    """Train for so long: a step takes 3 ms on a busy core, and 300 ms where the two threads have a core each."""
    truth, steps, end = Truth(), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        steps += 1
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    truth.end(steps)


if not os.environ.get("CURED"):
    threading.Thread(target=statistics, daemon=True).start()
train(6.0)
done.set()
