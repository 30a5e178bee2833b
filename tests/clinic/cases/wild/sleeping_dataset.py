"""A data set that waits (as for a network) in two workers. Expected: waiting for data; the workers sleep in fetch().

The truth is the time in next(loader) by the script's clock. CURED=1 uses 8 workers: these need no cores, and the
program becomes nearly four times as fast, so that advice against more workers is false.
"""

import os
import time

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


class Remote(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 16 * 120

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.fetch(index), index % 10

    def fetch(self, index: int) -> torch.Tensor:
        time.sleep(0.005)
        return torch.full((64,), float(index))


def train() -> None:
    workers = 8 if os.environ.get("CURED") else 2
    batches = iter(torch.utils.data.DataLoader(Remote(), batch_size=16, num_workers=workers))
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
