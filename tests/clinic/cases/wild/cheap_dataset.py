"""A cheap data set in two workers: sending a batch costs more than making it. Expected: waiting for data.

The truth is the time in next(loader) by the script's clock. CURED=1 uses no workers, which is several times as fast.
"""

import os

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Linear(16, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


class Cheap(torch.utils.data.Dataset):
    def __init__(self) -> None:
        self.x = torch.randn(4 * 4000, 16)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.x[index], index % 10


def train() -> None:
    workers = 0 if os.environ.get("CURED") else 2
    batches = iter(torch.utils.data.DataLoader(Cheap(), batch_size=4, num_workers=workers))
    truth, steps = Truth(), 0
    waiting = truth.part("input")
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


train()
