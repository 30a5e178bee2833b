"""Two ranks, one of which (SLOW_RANK, else 0) makes its data slowly. Expected: this rank is late: waiting for
data, in __getitem__(); the other rank waits for it.

The truth is the time in next(loader) and in backward by each rank's own clock. CURED=1 slows no rank.
"""

import os

import torch
from truth import Truth

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
slow = rank == int(os.environ.get("SLOW_RANK", "0")) and not os.environ.get("CURED")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 32 * 150

    def __getitem__(self, index: int) -> torch.Tensor:
        value = index
        for _ in range(12_000 if slow else 100):
            value = (value * 1103515245 + 12345) % 2147483648
        return torch.full((512,), value / 2147483648)


def train() -> None:
    batches = iter(torch.utils.data.DataLoader(Rows(), batch_size=32))
    truth, steps = Truth(), 0
    waiting, backward = truth.part("input"), truth.part("backward")
    while True:
        with waiting:
            x = next(batches, None)
        if x is None:
            break
        loss = torch.nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        with backward:
            loss.backward()
        optimizer.step()
        steps += 1
    truth.end(steps)


train()
torch.distributed.destroy_process_group()
