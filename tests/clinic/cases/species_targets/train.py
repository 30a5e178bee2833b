"""Learn which species are seen at a place and a week of the year."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SPECIES = 500


class Checklists(Dataset):
    """A place and a week, with the numbers of the species seen there and their shares."""

    def __init__(self, count, generator):
        self.places = generator.random((count, 3), dtype=np.float32)
        self.seen = [generator.choice(SPECIES, size, False) for size in generator.integers(5, 40, count)]
        self.shares = [generator.random(len(seen), dtype=np.float32) for seen in self.seen]

    def __len__(self):
        return len(self.places)

    def __getitem__(self, index):
        return self.places[index], self.seen[index], self.shares[index]


def collate(items):
    places, seen, shares = zip(*items, strict=True)
    target = torch.zeros(len(items), SPECIES)
    for row, numbers, values in zip(target, seen, shares, strict=True):
        row[torch.from_numpy(numbers)] = torch.from_numpy(values)
    return torch.from_numpy(np.stack(places)), target


class Waves(nn.Module):
    def forward(self, places):
        waves = torch.cat([places * 3.14 * 2**octave for octave in range(3)], 1)
        return torch.cat([waves.sin(), waves.cos()], 1)


if __name__ == "__main__":
    torch.manual_seed(0)
    checklists = Checklists(16384, np.random.default_rng(0))
    loader = DataLoader(checklists, 4096, shuffle=True, collate_fn=collate)
    model = nn.Sequential(Waves(), nn.Linear(18, 64), nn.GELU(), nn.Linear(64, 32), nn.Linear(32, SPECIES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    begin, cpu = time.perf_counter(), time.process_time()
    for epoch in range(9):
        for places, target in loader:
            loss = (model(places) - target).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.5f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
