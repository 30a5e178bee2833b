"""Evaluates inside of the loop every twentieth step, and saves a checkpoint after it."""

import os
import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 120
torch.manual_seed(0)
features = torch.randn(4096, 64)
labels = (features[:, 0] > 0).long()
train = DataLoader(TensorDataset(features[:3072], labels[:3072]), batch_size=32, shuffle=True)
held_out = DataLoader(TensorDataset(features[3072:], labels[3072:]), batch_size=128)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.no_grad()
def evaluate() -> float:
    model.eval()
    right = sum((model(inputs).argmax(-1) == targets).sum().item() for inputs, targets in held_out)
    model.train()
    return right / 1024


with tempfile.TemporaryDirectory() as folder:
    done = 0
    while done < steps:
        for inputs, targets in train:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done % 20 == 0:
                print(f"step {done} accuracy {evaluate():.4f}")
                torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
            if done == steps:
                break
