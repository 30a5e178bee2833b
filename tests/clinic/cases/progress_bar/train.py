"""Fit a small radiance field to random views."""

import sys

import torch
from barline import Bar
from torch import nn


class Field(nn.Module):
    """Colour and density of points, by sines of their places."""

    def __init__(self, octaves=4, width=32):
        super().__init__()
        self.register_buffer("scales", 2.0 ** torch.arange(octaves))
        self.net = nn.Sequential(nn.Linear(6 * octaves, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, points):
        angles = (points.unsqueeze(-1) * self.scales).flatten(-2)
        out = self.net(torch.cat([angles.sin(), angles.cos()], dim=-1))
        return out[..., :3].sigmoid(), nn.functional.softplus(out[..., 3])


def render(field, origins, directions, samples=12):
    depths = torch.linspace(0.1, 2.0, samples, device=origins.device)
    points = origins.unsqueeze(1) + depths.view(1, -1, 1) * directions.unsqueeze(1)
    colours, density = field(points)
    passed = torch.exp(-torch.cumsum(density, dim=1) * (depths[1] - depths[0]))
    weights = (1 - torch.exp(-density)) * passed
    return (weights.unsqueeze(-1) * colours).sum(1), weights.sum(1)


torch.manual_seed(0)
field = Field().to("cuda")
optimizer = torch.optim.Adam(field.parameters(), lr=5e-3)
bar = Bar(30, lazy="--lazy" in sys.argv)
for _ in range(30):
    origins, directions = torch.randn(2, 24, 3, device="cuda").unbind(0)
    wanted = directions.sigmoid()
    seen, opacity = render(field, origins, nn.functional.normalize(directions, dim=-1))
    loss = (seen - wanted).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bar.update(loss=loss.detach(), psnr=-10 * loss.detach().log10(), opacity=opacity.detach().mean())
