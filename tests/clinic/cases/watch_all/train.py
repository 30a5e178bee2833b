"""Train an autoencoder for signals and keep its history in a run book."""

import argparse
import tempfile
import time
from itertools import pairwise

import runbook
import torch
from torch import nn


def waves(batch, length=64):
    phase, speed = torch.rand(batch, 1) * 6, torch.rand(batch, 1) * 0.5
    return torch.sin(torch.arange(length) * speed + phase).unsqueeze(1)


def fit(model, steps, run):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        signal = waves(8)
        loss = nn.functional.l1_loss(model(signal + 0.2 * torch.randn_like(signal)), signal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log({"loss": loss.item(), "step": step})


parser = argparse.ArgumentParser()
parser.add_argument("--log-freq", type=int, default=2)
options = parser.parse_args()
torch.manual_seed(6)
pairs = list(pairwise((1, 64, 128, 128, 128, 64, 1)))
blocks = [nn.Sequential(nn.Conv1d(*pair, 5, padding=2), nn.BatchNorm1d(pair[1]), nn.SiLU()) for pair in pairs]
model = nn.Sequential(*blocks)
with tempfile.TemporaryDirectory() as folder:
    run = runbook.Run(folder)
    run.watch(model, log="all", log_freq=options.log_freq)
    begin, cpu = time.perf_counter(), time.process_time()
    fit(model, 120, run)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
