"""Every 10th step estimates the loss over 40 batches. Expected: evaluation, in estimate_loss(); not the model.

The truth is the time in estimate_loss() by the script's clock; CURED=1 does it once at the end.
"""

import os

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(1024, 10)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.randn(4096, 256)


def get_batch() -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.randint(0, len(data), (256,))
    return data[rows], rows % 10


@torch.no_grad()
def estimate_loss(batches: int = 40) -> float:
    model.eval()
    losses = torch.zeros(batches)
    for number in range(batches):
        x, y = get_batch()
        losses[number] = torch.nn.functional.cross_entropy(model(x), y)
    model.train()
    return losses.mean().item()


def train(steps: int) -> None:
    every = steps if os.environ.get("CURED") else 10
    truth = Truth()
    evaluating = truth.part("evaluation")
    for step in range(1, steps + 1):
        x, y = get_batch()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % every == 0:
            with evaluating:
                estimate_loss()
    truth.end(steps)


train(200)
