"""Workers that send 32 MB a batch, which they hardly compute. Expected: waiting for data.

The truth is the time in next(loader) by the script's clock; CURED=1 sends the few numbers that the batch is made of.
"""

import os

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
SIZE = 64 if os.environ.get("CURED") else 1024 * 1024


class Images(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8 * 100

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((SIZE,), float(index)), index % 10


def train() -> None:
    batches = iter(torch.utils.data.DataLoader(Images(), batch_size=8, num_workers=1))
    truth, steps = Truth(), 0
    waiting = truth.part("input")
    while True:
        with waiting:
            batch = next(batches, None)
        if batch is None:
            break
        x, y = batch
        loss = torch.nn.functional.cross_entropy(model(x[:, :64]), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    truth.end(steps)


train()
