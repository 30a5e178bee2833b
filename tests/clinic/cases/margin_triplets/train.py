"""Learn an embedding of particle hits in which the hits of one track lie close together."""

import time
from dataclasses import dataclass

import torch
from closeness import TripletLoss
from torch import nn


@dataclass
class Config:
    events: int = 45
    epochs: int = 2
    hits: int = 900
    tracks: int = 30
    lr: float = 3e-3
    triplets_per_anchor: int = 1


class HitEmbedder(nn.Sequential):
    def __init__(self, features=3, hidden=64, size=8):
        super().__init__(
            nn.Linear(features, hidden), nn.Tanh(),
            nn.Linear(hidden, hidden), nn.Tanh(),
            nn.Linear(hidden, size),
        )  # fmt: skip


def simulate_event(config, generator):
    """Hits along straight tracks from the middle, with a little noise, in random order."""
    directions = torch.randn(config.tracks, 3, generator=generator)
    directions /= directions.norm(dim=1, keepdim=True)
    track = torch.randint(config.tracks, (config.hits,), generator=generator)
    radius = 0.1 + torch.rand(config.hits, 1, generator=generator)
    hits = radius * directions[track] + 0.01 * torch.randn(config.hits, 3, generator=generator)
    return hits, track


@torch.no_grad()
def purity(model, hits, track):
    """The share of hits whose nearest other hit is of the same track."""
    distances = torch.cdist(model(hits), model(hits)).fill_diagonal_(torch.inf)
    return (track[distances.argmin(1)] == track).float().mean().item()


def fit(model, events, config):
    criterion = TripletLoss(margin=0.2, triplets_per_anchor=config.triplets_per_anchor)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    for epoch in range(config.epochs):
        for hits, track in events[1:]:
            optimizer.zero_grad()
            loss = criterion(model(hits), track)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}, purity {purity(model, *events[0]):.3f}")


if __name__ == "__main__":
    config = Config()
    torch.manual_seed(4)
    generator = torch.Generator().manual_seed(4)
    events = [simulate_event(config, generator) for _ in range(config.events + 1)]
    begin, cpu = time.perf_counter(), time.process_time()
    fit(HitEmbedder(), events, config)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
