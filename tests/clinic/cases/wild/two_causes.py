"""Two illnesses in each step: Python in normalize(), and a slow data set without workers. Expected: both are named.

The truth is the script's own clocks around next(loader) and normalize().
"""

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 32 * 150

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        value = index
        for _ in range(6_000):
            value = (value * 1103515245 + 12345) % 2147483648
        return torch.full((256,), value / 2147483648), index % 10


def normalize(rows: list[list[float]]) -> torch.Tensor:
    result = []
    for row in rows:
        largest = max(map(abs, row)) or 1.0
        result.append([value / largest for value in row])
        for _ in range(16):
            result[-1] = [value * 0.99 + 0.01 for value in result[-1]]
    return torch.tensor(result)


def train() -> None:
    batches = iter(torch.utils.data.DataLoader(Rows(), batch_size=32))
    truth, steps = Truth(), 0
    waiting, python = truth.part("input"), truth.part("python")
    while True:
        with waiting:
            batch = next(batches, None)
        if batch is None:
            break
        x, y = batch
        with python:
            x = normalize(x.tolist())
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    truth.end(steps)


train()
