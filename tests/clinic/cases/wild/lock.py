"""The loop waits for a lock that another thread holds while it writes slowly. Expected: waiting, in publish().

The truth is the time in publish() by the script's clock; CURED=1 has the other thread write without the lock.
"""

import os
import threading
import time

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(256, 512), torch.randn(256, 512)
lock, done = threading.Lock(), threading.Event()
losses: list[torch.Tensor] = []


def write() -> None:
    while not done.is_set():
        if os.environ.get("CURED"):
            time.sleep(0.03)
        else:
            with lock:
                time.sleep(0.03)
        time.sleep(0.002)


def publish(loss: torch.Tensor) -> None:
    with lock:
        losses.append(loss)


def train(steps: int) -> None:
    truth = Truth()
    publishing = truth.part("waiting")
    for _ in range(steps):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with publishing:
            publish(loss.detach())
    truth.end(steps)


threading.Thread(target=write, daemon=True).start()
train(200)
done.set()
