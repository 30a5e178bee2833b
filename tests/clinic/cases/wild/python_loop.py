"""A loop over numbers in Python in every step. Expected: Python, in count_tokens().

The truth is the thread's CPU time in count_tokens(), which touches no tensor; CURED=1 leaves it out.
"""

import os
from collections import Counter

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(256, 512), torch.randn(256, 512)
tokens = torch.randint(0, 100, (90_000,)).tolist()


def count_tokens() -> Counter[int]:
    counts: Counter[int] = Counter()
    for token in tokens:
        if token % 3:
            counts[token] += 1
    return counts


def train(steps: int) -> None:
    truth = Truth()
    python = truth.part("python")
    for _ in range(steps):
        if not os.environ.get("CURED"):
            with python:
                count_tokens()
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    truth.end(steps)


train(250)
