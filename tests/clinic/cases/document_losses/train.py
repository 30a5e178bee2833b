"""Fine-tune on packed documents, and keep the mean loss of each source of documents."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "cuda"
SOURCES = ("code", "chat", "math")
LENGTHS = (9, 5, 12, 7, 11, 4)


class Packs:
    """Packs of documents, with the borders of the documents, as a padding-free collator hands them out."""

    def __init__(self, number, width):
        self.tokens = torch.randn(number, sum(LENGTHS), width, device=DEVICE)
        self.labels = torch.randint(0, 20, (number, sum(LENGTHS)), device=DEVICE)
        self.kept = torch.rand(number, sum(LENGTHS), device=DEVICE) > 0.2
        self.borders = torch.tensor([0, *LENGTHS]).cumsum(0).to(DEVICE)
        self.sources = torch.arange(len(LENGTHS), device=DEVICE) % len(SOURCES)


class Tuner:
    def __init__(self, packs, *, is_vectorized):
        self.packs, self.is_vectorized = packs, is_vectorized
        self.model = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 20)).to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.sums = torch.zeros(len(SOURCES), 2, device=DEVICE)

    def record(self, losses, kept):
        if self.is_vectorized:
            places = torch.arange(len(losses), device=DEVICE)
            source = self.packs.sources[torch.bucketize(places, self.packs.borders[1:], right=True)]
            self.sums.index_add_(0, source, torch.stack([losses * kept, kept.float()], dim=1))
            return
        for number in range(len(LENGTHS)):
            span = slice(self.packs.borders[number], self.packs.borders[number + 1])
            own = losses[span][kept[span]]
            self.sums[number % len(SOURCES)] += torch.stack([own.sum(), torch.full((), float(len(own)), device=DEVICE)])

    def step(self, tokens, labels, kept):
        losses = F.cross_entropy(self.model(tokens), labels, reduction="none")
        self.record(losses.detach(), kept)
        self.optimizer.zero_grad()
        ((losses * kept).sum() / kept.sum()).backward()
        self.optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectorized", action="store_true")
    torch.manual_seed(0)
    tuner = Tuner(Packs(16, 16), is_vectorized=parser.parse_args().vectorized)
    for pack in zip(tuner.packs.tokens, tuner.packs.labels, tuner.packs.kept):
        tuner.step(*pack)
    for name, (total, count) in zip(SOURCES, tuner.sums.tolist()):
        print(f"{name}: {total / count:.4f}")
