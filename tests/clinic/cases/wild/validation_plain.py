"""Validation every 15 steps, without eval() and no_grad(). Expected: what runs after the optimizer, in validate().

The truth is the time in validate() by the script's clock; CURED=1 validates once at the end.
"""

import os

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 26 * 26, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
Batch = tuple[torch.Tensor, torch.Tensor]
batches = [(torch.randn(32, 1, 28, 28), torch.randint(0, 10, (32,))) for _ in range(35)]


def validate(held_out: list[Batch]) -> float:
    losses = [torch.nn.functional.cross_entropy(model(x), y).item() for x, y in held_out]
    return sum(losses) / len(losses)


def train_step(x: torch.Tensor, y: torch.Tensor) -> None:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main(steps: int) -> None:
    every = steps if os.environ.get("CURED") else 15
    truth = Truth()
    validation = truth.part("validation")
    for step in range(1, steps + 1):
        train_step(*batches[step % 15])
        if step % every == 0:
            with validation:
                validate(batches[15:])
    truth.end(steps)


main(1800)
