"""Short epochs whose workers are started anew each time. Expected: waiting for data: the start of the workers.

The truth is the time in iter(loader) and next(loader) by the script's clock; CURED=1 keeps the workers.
"""

import os

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(8 * 64, 256), torch.randint(0, 10, (8 * 64,)))


def train(epochs: int) -> None:
    keep = bool(os.environ.get("CURED"))
    loader = torch.utils.data.DataLoader(data, batch_size=64, num_workers=2, persistent_workers=keep)
    truth, steps = Truth(), 0
    waiting = truth.part("input")
    for _ in range(epochs):
        with waiting:
            batches = iter(loader)
        while True:
            with waiting:
                batch = next(batches, None)
            if batch is None:
                break
            x, y = batch
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
    truth.end(steps)


train(30)
