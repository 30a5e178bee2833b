"""Gradients by torch.func and updates of a dictionary of parameters: no optimizer, no loader and no backward()."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value
from truth import Truth

STEPS = 1000


def make_features(step: int) -> Tensor:
    rows = [[((step * 31 + row * 17 + column * 7) % 101) / 101 for column in range(64)] for row in range(64)]
    return torch.tensor(rows)


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 1))
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def loss_of(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return ((functional_call(model, parameters, (x,)) - y) ** 2).mean()

    gradients_of = grad_and_value(loss_of)
    truth = Truth()
    for step in range(STEPS):
        with truth.part("python"):
            x = make_features(step)
        gradients, _ = gradients_of(parameters, x, x.sum(1, keepdim=True))
        parameters = {name: value - 0.01 * gradients[name] for name, value in parameters.items()}
    truth.end(STEPS)


main()
