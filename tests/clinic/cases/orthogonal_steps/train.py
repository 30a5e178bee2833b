"""Train an adapter on top of frozen features with an orthogonal optimizer."""

import sys

import torch
from steadyopt import OrthoMomentum
from torch import nn


class Adapter(nn.Module):
    def __init__(self, width=24, blocks=4):
        super().__init__()
        self.down = nn.ModuleList(nn.Linear(width, 6) for _ in range(blocks))
        self.up = nn.ModuleList(nn.Linear(6, width) for _ in range(blocks))

    def forward(self, features):
        for down, up in zip(self.down, self.up):
            features = features + up(torch.relu(down(features)))
        return features


def batches(number, device):
    for _ in range(number):
        features = torch.randn(16, 24, device=device)
        yield features, features.roll(1, dims=-1)


torch.manual_seed(0)
device = torch.device("cuda")
adapter = Adapter().to(device)
optimizer = OrthoMomentum(adapter.parameters(), lr=2e-3, on_device="--on-device" in sys.argv)
for features, wanted in batches(15, device):
    loss = nn.functional.smooth_l1_loss(adapter(features), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("final loss", round(loss.item(), 4))
