"""Forks two processes that train a model each, as a search over learning rates does, and takes their losses."""

import multiprocessing
import sys

import torch
from torch import nn

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100


def train(rate: float, losses) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    inputs = torch.randn(128, 64)
    for _ in range(steps):
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    losses.put((rate, loss.item()))


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    losses = context.SimpleQueue()
    children = [context.Process(target=train, args=(rate, losses)) for rate in (0.1, 0.01)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    for rate, loss in sorted(losses.get() for _ in children):
        print(f"rate {rate} loss {loss:.6f}")
    sys.exit(sum(child.exitcode for child in children))
