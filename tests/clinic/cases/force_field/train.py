"""Fit a potential to energies and forces of small molecules; forces are gradients of the energy."""

import math
import sys
import time

import torch
from torch import nn

ATOMS = 24


class Descriptor(nn.Module):
    """Distances between atoms, seen through smooth windows."""

    def __init__(self, windows=16, cutoff=4.0):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.5, cutoff, windows))
        self.cutoff = cutoff

    def forward(self, places):
        offsets = places.unsqueeze(2) - places.unsqueeze(1)
        distance = (offsets.square().sum(-1) + 1e-4).sqrt()
        fade = 0.5 * (torch.cos(math.pi * (distance / self.cutoff).clamp(max=1.0)) + 1.0)
        return torch.exp(-4.0 * (distance.unsqueeze(-1) - self.centres).square()) * fade.unsqueeze(-1)


class Potential(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.descriptor = Descriptor()
        self.pair = nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.fitting = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, places):
        per_atom = self.pair(self.descriptor(places)).sum(2) / ATOMS
        return self.fitting(per_atom).sum((1, 2))


def molecules(count):
    """Places of atoms with the energy and the forces of springs between them."""
    places = (torch.randn(count, ATOMS, 3) * 1.5).requires_grad_()
    offsets = places.unsqueeze(2) - places.unsqueeze(1)
    energy = torch.exp(-offsets.square().sum(-1)).sum((1, 2))
    (slope,) = torch.autograd.grad(energy.sum(), places)
    return places.detach(), energy.detach(), -slope


if __name__ == "__main__":
    torch.manual_seed(5)
    model = Potential()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused="--fused" in sys.argv)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(45):
        places, energy, force = molecules(16)
        places.requires_grad_()
        guess = model(places)
        (slope,) = torch.autograd.grad(guess.sum(), places, create_graph=True)
        loss = (guess - energy).square().mean() / ATOMS + 50.0 * (-slope - force).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    print(f"loss {loss.item():.4f}, rate {schedule.get_last_lr()[0]:.2e}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
