"""A plain training loop of known work: so many equal passes over small batches make a step, and MORE is real work.

Environment: PASSES (how many make a step), MORE (share of passes added: 0.05 is 5% more work), EVERY and STALL (each
EVERY-th step has STALL times as many passes more), WORKERS and LOADING (loader workers, and arithmetic for a sample).
"""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

PASSES = int(os.environ.get("PASSES", "100"))
MORE = float(os.environ.get("MORE", "0"))
EVERY, STALL = int(os.environ.get("EVERY", "0")), float(os.environ.get("STALL", "0"))
WORKERS, LOADING = int(os.environ.get("WORKERS", "0")), int(os.environ.get("LOADING", "0"))
FEATURES, WIDTH, CLASSES, BATCH = 32, 128, 10, 64


class Endless(IterableDataset):
    """Batches that take LOADING small matrix products each to make."""

    def __iter__(self):
        torch.manual_seed(0)
        table = torch.randn(WIDTH, WIDTH) / WIDTH**0.5
        while True:
            made = torch.randn(BATCH, WIDTH)
            for _ in range(LOADING):
                made = torch.tanh(made @ table)
            yield made[:, :FEATURES].clone(), torch.randint(0, CLASSES, (BATCH,))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(Endless(), batch_size=None, num_workers=WORKERS)
    model = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step, (features, labels) in enumerate(loader):
        passes = PASSES + round(PASSES * MORE)
        if EVERY and step % EVERY == EVERY - 1:
            passes += round(PASSES * STALL)
        optimizer.zero_grad()
        for _ in range(passes):
            loss = nn.functional.cross_entropy(model(features), labels)
            loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
