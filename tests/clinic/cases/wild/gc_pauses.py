"""Many small cyclic objects make Python's garbage collection long. Expected: Python, because of the collections.

The truth is the time between the collector's own callbacks (gc.callbacks); CURED=1 freezes the old objects.
"""

import gc
import os

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(256, 256), torch.randn(256, 256)
history = [{"index": index, "next": [index]} for index in range(400_000)]


def remember(step: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [{"step": step, "row": [row]} for row in range(1500)]
    for row in rows:
        row["rows"] = row
    return rows


def train(steps: int) -> None:
    if os.environ.get("CURED"):
        gc.freeze()
    truth = Truth()
    collecting, pause = truth.part("gc"), []

    def collected(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            pause.append(collecting.__enter__())
        elif pause:
            pause.pop()
            collecting.__exit__()

    gc.callbacks.append(collected)
    kept: list[object] = []
    for step in range(steps):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept.append(remember(step))
    gc.callbacks.remove(collected)
    truth.end(steps)


train(700)
