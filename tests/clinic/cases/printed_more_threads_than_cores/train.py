"""Train a network with far more threads than the program has cores."""

import os
import time

import torch
from torch import nn

STEPS = 60


def main():
    torch.manual_seed(0)
    torch.set_num_threads(8 * len(os.sched_getaffinity(0)))
    layers = [layer for _ in range(6) for layer in (nn.Linear(384, 384), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(384, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(STEPS):
        loss = model(torch.randn(192, 384)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
