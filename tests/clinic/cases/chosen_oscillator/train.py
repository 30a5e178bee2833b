"""Train a surrogate of one neural mass model."""

import argparse
import importlib
import time

import numpy as np
import torch
from torch import nn


def simulate(name, runs, nodes):
    model = getattr(importlib.import_module("neuromass"), name)()
    path = model.run(np.random.default_rng(0).normal(size=(runs, nodes)), 60)
    return torch.from_numpy(path).float()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="Linear")
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    surrogate = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(surrogate.parameters(), lr=2e-3)
    begin, cpu = time.perf_counter(), time.process_time()
    path = simulate(args.model, runs=64, nodes=16)
    for _ in range(args.steps):
        at = torch.randint(60, ())
        loss = (surrogate(path[:, at]) - path[:, at + 1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{args.model}: loss {loss.item():.5f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
