"""Fit a small denoiser and save a picture of its results now and then."""

import argparse
import os
import tempfile
import time

import torch
from torch import nn


def plotting(folder):
    os.environ["MPLCONFIGDIR"] = folder
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def draw(path, folder, clean, restored):
    pyplot = plotting(folder)
    figure, axes = pyplot.subplots()
    axes.plot(clean, label="clean")
    axes.plot(restored, label="restored")
    axes.set_title("validation")
    axes.legend()
    figure.savefig(path)
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--picture-every", type=int, default=150)
    parser.add_argument("--cured", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(2)
    folder = tempfile.mkdtemp(prefix="plots-")
    net = nn.Sequential(nn.Conv1d(1, 24, 9, padding=4), nn.ReLU(), nn.Conv1d(24, 1, 9, padding=4))
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    grid = torch.linspace(0, 12, 128)
    if args.cured:
        draw(f"{folder}/start.png", folder, grid, grid)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(1, 451):
        clean = torch.sin(grid * torch.rand(16, 1, 1) + torch.rand(16, 1, 1))
        restored = net(clean + 0.3 * torch.randn_like(clean))
        loss = (restored - clean).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.picture_every == 0:
            print(f"step {step}: loss {loss.item():.4f}")
            draw(f"{folder}/{step}.png", folder, clean[0, 0], restored[0, 0].detach())
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
