"""Train a forecaster whose loss is weighted by the area of the nodes."""

import sys
import time

import torch
from torch import nn


class Scaler:
    """Weights of the nodes; those outside the mask count less."""

    def __init__(self, area):
        self.area = area

    def values(self):
        return self.area / self.area.mean()


class LimitedAreaScaler(Scaler):
    def __init__(self, area, inside, share):
        super().__init__(area)
        self.inside = inside
        self.share = share

    def values(self):
        weights = super().values()
        count = int(self.inside.sum()) if "--tensor-sum" in sys.argv else int(sum(self.inside))
        weights[~self.inside] *= self.share * count / len(self.inside)
        return weights


class WeightedLoss(nn.Module):
    def __init__(self, scalers):
        super().__init__()
        for name, scaler in scalers.items():
            self.register_buffer(name, scaler.values())
        self.names = list(scalers)

    def forward(self, wanted, got, nodes):
        loss = (wanted - got).square().mean(-1)
        for name in self.names:
            loss = loss * getattr(self, name)[nodes]
        return loss.mean()


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
    criterion = WeightedLoss({"area": Scaler(area), "limited": LimitedAreaScaler(area, inside, 0.5)})
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
