"""An optimizer that calls a closure many times in each of its steps."""

import sys

import torch

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
torch.manual_seed(0)
matrix, target = torch.randn(200, 100), torch.randn(200)
weights = torch.zeros(100, requires_grad=True)
optimizer = torch.optim.LBFGS([weights], lr=0.5, max_iter=10)


def closure() -> torch.Tensor:
    optimizer.zero_grad()
    loss = (matrix @ weights - target).square().mean() + 1e-3 * weights.abs().sum()
    loss.backward()
    return loss


for _ in range(steps):
    loss = optimizer.step(closure)
print(f"loss {loss.item():.6f}")
