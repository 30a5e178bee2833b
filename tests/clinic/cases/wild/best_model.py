"""The best state is copied after each short epoch. Expected: what runs after the optimizer, in keep_best().

The truth is the time in keep_best() by the script's clock; CURED=1 copies once at the end.
"""

import copy
import os

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(40_000, 128, sparse=True), torch.nn.Flatten(), torch.nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randint(0, 40_000, (640, 4)), torch.randn(640, 1)


def train_step(x: torch.Tensor, y: torch.Tensor) -> None:
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def keep_best() -> dict[str, torch.Tensor]:
    return copy.deepcopy(model.state_dict())


def main(epochs: int) -> None:
    truth = Truth()
    copying = truth.part("copying")
    for epoch in range(epochs):
        for begin in range(0, 640, 32):
            train_step(x[begin : begin + 32], y[begin : begin + 32])
        if not os.environ.get("CURED") or epoch == epochs - 1:
            with copying:
                keep_best()
    truth.end(20 * epochs)


main(80)
