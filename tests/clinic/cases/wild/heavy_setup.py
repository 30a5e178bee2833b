"""Two seconds of Python before the loop, none of it within. Expected: computing, no cause to name.

The truth is the thread's CPU time in forward, backward and the update.
"""

import torch
from truth import Truth


def make_vocabulary() -> dict[str, int]:
    words: dict[str, int] = {}
    for number in range(3_000_000):
        words[f"w{number % 5003}"] = number
    return words


def train(steps: int) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(512, 1024), torch.randn(512, 1024)
    truth = Truth()
    computing = truth.part("compute")
    for _ in range(steps):
        with computing:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    truth.end(steps)


make_vocabulary()
train(60)
