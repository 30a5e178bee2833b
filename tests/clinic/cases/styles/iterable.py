"""An iterable data set that makes its tokens in Python while the training waits for them."""

import sys
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

WORDS = "the quick brown fox jumps over the lazy dog and runs into the deep dark forest".split()


class Stream(IterableDataset):
    def __init__(self, count: int) -> None:
        self.count = count
        self.vocabulary = {word: number for number, word in enumerate(sorted(set(WORDS)))}

    def __iter__(self) -> Iterator[torch.Tensor]:
        for start in range(self.count):
            text = " ".join(WORDS[(start + i * i) % len(WORDS)] for i in range(33))
            yield torch.tensor([self.vocabulary[word] for word in text.split()])


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 150
    torch.manual_seed(0)
    data = Stream(steps * 32)
    table, cell, head = nn.Embedding(16, 32), nn.GRU(32, 32, batch_first=True), nn.Linear(32, 16)
    parameters = [*table.parameters(), *cell.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    for batch in DataLoader(data, batch_size=32):
        hidden, _ = cell(table(batch[:, :-1]))
        loss = nn.functional.cross_entropy(head(hidden).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
