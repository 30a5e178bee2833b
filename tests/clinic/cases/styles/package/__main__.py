"""A package that is started with -m, and whose modules have the names of ours."""

import os
import sys

import torch
import units
from torch import nn

import profiler
from package import run, store

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
torch.manual_seed(0)
model = nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(steps):
    optimizer.zero_grad()
    loss = run.loss_of(model, store.batch())
    loss.backward()
    optimizer.step()
with open("notes.txt", encoding="utf-8") as file:  # beside the place from which we were started
    print(profiler.__doc__, units.KILO, file.read().strip(), f"{loss.item():.6f}")
sys.stdout.flush()
os._exit(7)
