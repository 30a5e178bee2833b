"""Matrix products alone: nothing is wrong. Expected: computing, no cause to name.

The truth is the thread's CPU time in forward, backward and the update, which are all that the loop does.
"""

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(512, 1024), torch.randn(512, 1024)


def train(steps: int) -> None:
    truth = Truth()
    computing = truth.part("compute")
    for _ in range(steps):
        with computing:
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    truth.end(steps)


train(60)
