"""A tiny network, about 1 ms a step on one thread: a plain training script, run bare and under each recorder."""

from __future__ import annotations

import os
import sys
from itertools import chain, islice, repeat

import torch
from timed import finished, stamp, started, step_of, watch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES, WIDTH, CLASSES, BATCH, BATCHES = 32, 256, 10, 64, 2000
STEPS = int(os.environ.get("OVERHEAD_STEPS", "4000"))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    watch()
    size = min(STEPS, BATCHES) * BATCH
    samples = TensorDataset(torch.randn(size, FEATURES), torch.randint(0, CLASSES, (size,)))
    loader = DataLoader(samples, batch_size=BATCH, shuffle=True)
    model = nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    stamps, total = started(), 0.0
    epochs = chain.from_iterable(repeat(loader))
    for step, (features, labels) in enumerate(islice(epochs, STEPS)):
        with step_of(model):
            loss = nn.functional.cross_entropy(model(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if step % 50 == 0:
                print(f"step {step} loss {total / (step + 1):.3f}", file=sys.stderr)
        stamps.append(stamp())
    finished(stamps)


if __name__ == "__main__":
    main()
