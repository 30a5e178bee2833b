"""A data set that computes each item in Python, without workers. Expected: waiting for data, made in __getitem__().

The truth is the time in next(loader) by the script's clock; CURED=1 makes the items before the loop.
"""

import os

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


class Words(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 32 * 500

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        value, row = index + 1, []
        for _ in range(256):
            value = (value * 1103515245 + 12345) % 2147483648
            row.append(value / 2147483648)
        for _ in range(10):
            row = [(left + right) / 2 for left, right in zip(row, reversed(row), strict=True)]
        return torch.tensor(row), index % 10


def train() -> None:
    data = Words()
    if os.environ.get("CURED"):
        data = [data[index] for index in range(len(data))]
    batches = iter(torch.utils.data.DataLoader(data, batch_size=32))
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
