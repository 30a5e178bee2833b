"""Classify flowers, and keep a checkpoint of each tenth epoch."""

import sys
import tempfile
import time

import holdfast
import torch
from torch import nn

CURED = "--cured" in sys.argv


def train(net, optimizer, epochs):
    folder = tempfile.mkdtemp(prefix="flowers-")
    experiment = holdfast.Experiment(folder, {"epochs": epochs}, imports_types=not CURED)
    kinds = torch.randint(3, (480,))
    flowers = torch.randn(3, 4)[kinds] + 0.6 * torch.randn(480, 4)
    for epoch in range(1, epochs + 1):
        for rows in torch.randperm(480).split(40):
            loss = nn.functional.cross_entropy(net(flowers[rows]), kinds[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 10 == 0:
            accuracy = (net(flowers).argmax(-1) == kinds).float().mean()
            experiment.checkpoint(net.state_dict(), loss=loss, accuracy=accuracy)
            print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {accuracy.item():.3f}")


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
begin, cpu = time.perf_counter(), time.process_time()
train(net, optimizer, 50)
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
