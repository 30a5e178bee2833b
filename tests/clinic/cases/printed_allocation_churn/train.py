"""Train a network on batches that are covered by a mask of a large field."""

import time

import torch
from torch import nn

STEPS = 40


def cover(x):
    field = torch.zeros(4096, 4096)
    field[: len(x), : x.shape[1]] = 1.0
    return x * field[: len(x), : x.shape[1]]


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(STEPS):
        loss = model(cover(torch.randn(64, 256))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
