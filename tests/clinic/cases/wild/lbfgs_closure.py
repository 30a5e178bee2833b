"""An optimizer that calls a closure with the forward and the backward pass many times in each of its steps."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from truth import Truth

STEPS = 60


def main() -> None:
    torch.manual_seed(0)
    x = torch.linspace(-3, 3, 20_000)[:, None]
    y = torch.sin(x)
    model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    truth = Truth()

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = ((model(x) - y) ** 2).mean()
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)
    truth.end(STEPS)


main()
