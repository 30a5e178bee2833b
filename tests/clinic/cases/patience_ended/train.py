"""Train a classifier of relations for up to 100 epochs, with patience."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Patience:
    """Tells when the metric has not improved for some epochs."""

    def __init__(self, epochs):
        self.epochs, self.best, self.left = epochs, float("-inf"), epochs

    def is_over(self, metric):
        self.left = self.epochs if metric > self.best else self.left - 1
        self.best = max(metric, self.best)
        return self.left == 0


def bags(count, seed):
    """Bags of eight sentences; the mark of the relation stands in each."""
    draw = torch.Generator().manual_seed(seed)
    relation = torch.randint(4, (count,), generator=draw)
    words = torch.randint(10, 2000, (count, 8, 24), generator=draw)
    words[:, :, :12] = relation[:, None, None]
    return TensorDataset(words, relation)


class BagModel(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed, self.conv = nn.Embedding(2000, width), nn.Conv1d(width, width, 3, padding=1)
        self.head = nn.Linear(width, 4)

    def forward(self, words):
        sentences = self.conv(self.embed(words.flatten(0, 1)).transpose(1, 2)).relu().mean(-1)
        return self.head(sentences.view(*words.shape[:2], -1).mean(1))


def main():
    torch.manual_seed(0)
    train, valid = DataLoader(bags(640, 0), 32, shuffle=True), DataLoader(bags(160, 1), 80)
    model, patience = BagModel(), Patience(3)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    begin, cpu = time.perf_counter(), time.process_time()
    for epoch in range(100):
        for words, relation in train:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(words), relation).backward()
            optimizer.step()
        with torch.no_grad():
            right = sum((model(words).argmax(1) == relation).sum().item() for words, relation in valid) / 160
        if patience.is_over(right):
            print(f"ran out of patience in epoch {epoch}, accuracy {right:.3f}")
            break
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


main()
