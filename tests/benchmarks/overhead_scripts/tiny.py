"""A tiny network, about 1 ms a step on one thread: a plain training script, run bare and under each recorder."""

from __future__ import annotations

import os
import sys

import torch
from timed import finished, stamp, step_of, watch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES, WIDTH, CLASSES, BATCH = 32, 256, 10, 64
STEPS = int(os.environ.get("OVERHEAD_STEPS", "4000"))


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    watch()
    samples = TensorDataset(torch.randn(STEPS * BATCH, FEATURES), torch.randint(0, CLASSES, (STEPS * BATCH,)))
    loader = DataLoader(samples, batch_size=BATCH, shuffle=True)
    model = nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    stamps, total = [stamp()], 0.0
    for step, (features, labels) in enumerate(loader):
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
