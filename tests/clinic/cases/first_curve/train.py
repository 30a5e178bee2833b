"""Fit a small denoiser and save a picture of its results now and then."""

import os
import sys
import tempfile
import time

import torch
from torch import nn


def plotting(folder):
    os.environ["MPLCONFIGDIR"] = folder
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    return plt


def draw(path, folder, clean, restored):
    plt = plotting(folder)
    figure, axes = plt.subplots()
    axes.plot(clean, label="clean")
    axes.plot(restored, label="restored")
    axes.legend()
    figure.savefig(path)
    plt.close(figure)


torch.manual_seed(2)
folder = tempfile.mkdtemp(prefix="plots-")
net = nn.Sequential(nn.Conv1d(1, 24, 9, padding=4), nn.ReLU(), nn.Conv1d(24, 1, 9, padding=4))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
grid = torch.linspace(0, 12, 128)
if "--cured" in sys.argv:
    draw(f"{folder}/start.png", folder, grid, grid)
begin, cpu = time.perf_counter(), time.process_time()
for step in range(1, 451):
    clean = torch.sin(grid * torch.rand(16, 1, 1) + torch.rand(16, 1, 1))
    restored = net(clean + 0.3 * torch.randn_like(clean))
    loss = (restored - clean).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 150 == 0:
        draw(f"{folder}/{step}.png", folder, clean[0, 0], restored[0, 0].detach())
print(f"loss {loss.item():.4f}")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
