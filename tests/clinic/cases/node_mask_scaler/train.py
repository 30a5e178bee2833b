"""Train a forecaster whose loss is weighted by the area of the nodes."""

import sys
import time

import torch
from torch import nn


class LimitedAreaScaler:
    """Weights of the nodes by area; those outside the mask count less."""

    def __init__(self, area, inside, share):
        self.area, self.inside, self.share = area, inside, share

    def values(self):
        weights = self.area / self.area.mean()
        count = int(self.inside.sum()) if "--tensor-sum" in sys.argv else int(sum(self.inside))
        weights[~self.inside] *= self.share * count / len(self.inside)
        return weights


class WeightedLoss(nn.Module):
    def __init__(self, scaler):
        super().__init__()
        self.register_buffer("weights", scaler.values())

    def forward(self, wanted, got, nodes):
        return ((wanted - got).square().mean(-1) * self.weights[nodes]).mean()


class Forecaster(nn.Module):
    def __init__(self, variables=24, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(variables, width), nn.SiLU(), nn.Linear(width, variables))

    def forward(self, state):
        return state + self.net(state)


def main(nodes=400_000, steps=40):
    torch.manual_seed(1)
    area = torch.rand(nodes) + 0.5
    inside = torch.rand(nodes) < 0.3
    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin, cpu = time.perf_counter(), time.process_time()
    criterion = WeightedLoss(LimitedAreaScaler(area, inside, 0.5))
    for step in range(steps):
        chosen = torch.randint(nodes, (2048,))
        now = torch.randn(2048, 24)
        loss = criterion(now.roll(1, -1), model(now), chosen)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


main()
