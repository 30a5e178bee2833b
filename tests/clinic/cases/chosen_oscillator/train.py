"""Train a surrogate of one neural mass model."""

import importlib
import sys
import time

import numpy as np
import torch
from torch import nn


def main(name="Linear", *_):
    torch.manual_seed(0)
    surrogate = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(surrogate.parameters(), lr=2e-3)
    begin, cpu = time.perf_counter(), time.process_time()
    model = getattr(importlib.import_module("neuromass"), name)()
    path = torch.from_numpy(model.run(np.random.default_rng(0).normal(size=(64, 16)), 60)).float()
    for _ in range(60):
        at = torch.randint(60, ())
        loss = (surrogate(path[:, at]) - path[:, at + 1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{name}: loss {loss.item():.5f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main(*sys.argv[1:])
