"""Steps of less than a millisecond: nothing but the overhead of operators on 8 numbers. Expected: framework or Python.

The truth is arithmetic: the model needs some thousand floating-point operations a step, which take microseconds.
"""

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(4, 8), torch.randn(4, 1)


def train(steps: int) -> None:
    truth = Truth()
    for _ in range(steps):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    truth.end(steps)


train(10_000)
