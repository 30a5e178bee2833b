"""Classify sentences by their letters, with a validation set that is prepared when it is asked for."""

import random
import sys
import time
from functools import cached_property
from itertools import pairwise

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CURED = "--cured" in sys.argv
LETTERS = "abcdefghijklmnopqrstuvwxyz "


class Sentences:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def prepared(self, amount):
        rows, labels = [], []
        for _ in range(amount):
            text = "".join(self.rng.choices(LETTERS, k=120))
            counts = [0.0] * 729
            for left, right in pairwise(text):
                counts[27 * LETTERS.index(left) + LETTERS.index(right)] += 1.0
            rows.append(counts)
            labels.append(int(text.count("e") > text.count("t")))
        return TensorDataset(torch.tensor(rows), torch.tensor(labels))

    @cached_property
    def training(self):
        return DataLoader(self.prepared(1500), batch_size=25, shuffle=True)

    @cached_property
    def validation(self):
        return DataLoader(self.prepared(8000), batch_size=500)


@torch.no_grad()
def accuracy(net, loader):
    return sum((net(rows).argmax(-1) == labels).sum().item() for rows, labels in loader) / len(loader.dataset)


torch.manual_seed(0)
data = Sentences(0)
net = nn.Sequential(nn.Linear(729, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
ready = (data.training, data.validation) if CURED else (data.training,)
begin, cpu = time.perf_counter(), time.process_time()
for epoch in range(6):
    for rows, labels in data.training:
        loss = nn.functional.cross_entropy(net(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: accuracy {accuracy(net, data.validation):.3f}")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
