"""Train a network towards a copy of itself that is made anew after each step."""

import copy
import time

import torch
from torch import nn

STEPS = 400


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 2))
    target = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(STEPS):
        inputs = torch.randn(4, 128)
        with torch.no_grad():
            goal = target(inputs).flip(1)
        loss = nn.functional.mse_loss(net(inputs), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        target = copy.deepcopy(net)
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
