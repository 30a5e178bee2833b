"""Gradient accumulation: an optimizer step every fourth batch, the norm clipped before it."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--every", type=int, default=4)
args = parser.parse_args()
torch.manual_seed(0)
data = TensorDataset(torch.randn(2048, 64), torch.randn(2048, 1))
model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
batch = done = 0
while done < args.steps:
    for inputs, targets in DataLoader(data, batch_size=32):
        loss = (model(inputs) - targets).square().mean() / args.every
        loss.backward()
        batch += 1
        if batch % args.every == 0:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            done += 1
            if done == args.steps:
                break
print(f"loss {float(loss):.6f} norm {float(norm):.6f}")
