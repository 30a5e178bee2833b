"""Logs, averages weights and draws a histogram after every optimizer step: time that many tools do not show."""

import copy
import json
import sys
import tempfile

import torch
from torch import nn

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 150
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
average = copy.deepcopy(model)
optimizer = torch.optim.AdamW(model.parameters())
inputs = torch.randn(128, 64)


def log_metrics(step: int, file) -> None:
    record = {"step": step}
    for name, parameter in model.named_parameters():
        values = parameter.detach().flatten().tolist()
        record[name] = sum(value * value for value in values[:4000])
    file.write(json.dumps(record) + "\n")


def update_average() -> None:
    with torch.no_grad():
        for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
            slow.lerp_(fast, 0.01)


with tempfile.TemporaryFile("w") as log:
    for step in range(steps):
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_average()
        log_metrics(step, log)
print(f"loss {loss.item():.6f}")
