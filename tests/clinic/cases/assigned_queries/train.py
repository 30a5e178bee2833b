"""Train a small detector whose decoder levels are each matched to the boxes of the batch."""

import sys

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import nn

LEVELS, QUERIES, BOXES, BATCH = 3, 8, 3, 4
AT_ONCE = "--at-once" in sys.argv


class Decoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(QUERIES, width))
        self.levels = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(LEVELS))
        self.box = nn.Linear(width, 4)

    def forward(self, memory):
        hidden, found = self.queries + memory.unsqueeze(1), []
        for level in self.levels:
            hidden = hidden + level(hidden)
            found.append(self.box(hidden).sigmoid())
        return found


class Criterion:
    def cost(self, found, boxes):
        return (found.unsqueeze(2) - boxes.unsqueeze(1)).abs().sum(-1).detach()

    def solve(self, cost):
        """The query of each box, for costs that lie on the host."""
        pairs = [linear_sum_assignment(image) for image in cost.reshape(-1, QUERIES, BOXES).numpy()]
        return np.stack([queries[boxes.argsort()] for queries, boxes in pairs])

    def __call__(self, levels, boxes):
        if AT_ONCE:
            solved = self.solve(torch.stack([self.cost(found, boxes) for found in levels]).cpu())
            chosen = torch.as_tensor(solved, device=boxes.device).view(LEVELS, BATCH, BOXES)
        else:
            chosen = [
                torch.as_tensor(self.solve(self.cost(found, boxes).cpu()), device=boxes.device) for found in levels
            ]
        loss = 0.0
        for found, queries in zip(levels, chosen):
            own = found.gather(1, queries.unsqueeze(-1).expand(-1, -1, 4))
            loss = loss + (own - boxes).abs().mean()
        return loss


torch.manual_seed(0)
net, criterion = Decoder().to("cuda"), Criterion()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
memory = torch.randn(16, BATCH, 32, device="cuda")
boxes = torch.rand(16, BATCH, BOXES, 4, device="cuda")
for images, wanted in zip(memory, boxes):
    loss = criterion(net(images), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {float(loss):.4f}")
