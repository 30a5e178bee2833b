"""Train a small transformer-like stack whose replicas are aligned after each update."""

import sys
import time

import torch
from meshsync import Mesh
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, tokens):
        return tokens + self.down(torch.relu(self.up(self.norm(tokens))))


def align(model, mesh, without_gradient):
    for parameter in model.parameters():
        mesh.broadcast_(parameter.detach() if without_gradient else parameter)


def main():
    torch.manual_seed(3)
    mesh = Mesh()
    model = nn.Sequential(nn.Linear(24, 48), *[Block(48) for _ in range(6)], nn.Linear(48, 24))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(420):
        batch = torch.randn(4, 6, 24)
        loss = (model(batch) - batch.roll(1, dims=1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        align(model, mesh, "--cured" in sys.argv)
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
