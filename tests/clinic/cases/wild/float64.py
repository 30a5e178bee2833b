"""A table of NumPy's float64 makes the whole model float64. Expected: computing in float64; no all-clear.

The truth is the gain of CURED=1, which converts the table to float32.
"""

import os

import numpy as np
import torch
from truth import Truth

torch.manual_seed(0)
table = torch.from_numpy(np.random.default_rng(0).standard_normal((512, 1024)))
x = table.float() if os.environ.get("CURED") else table
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).to(x.dtype)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def train(steps: int) -> None:
    truth = Truth()
    computing = truth.part("compute")
    for _ in range(steps):
        with computing:
            loss = torch.nn.functional.mse_loss(model(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    truth.end(steps)


train(35)
