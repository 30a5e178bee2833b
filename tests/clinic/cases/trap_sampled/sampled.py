"""A training on sequences whose sampler groups items of similar length into batches."""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

BATCH = 32

parser = argparse.ArgumentParser()
parser.add_argument("--ill", action="append", default=[], choices=["slow-sampler"])
parser.add_argument("--cured", action="append", default=[], choices=["slow-sampler"])
parser.add_argument("--steps", type=int, default=300)
args = parser.parse_args()
torch.manual_seed(0)
random.seed(0)
torch.set_num_threads(1)


class Sequences(Dataset):
    def __init__(self, size=20_000):
        self.lengths = [random.randrange(16, 64) for _ in range(size)]
        self.values = torch.randn(size + 64, 8)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return self.values[index : index + self.lengths[index]]


class SimilarLengths(Sampler):
    def __init__(self, lengths):
        self.lengths = lengths

    def __iter__(self):
        items = range(len(self.lengths))
        if not args.ill:
            items = sorted(items, key=lambda item: self.lengths[item])
        while True:
            if args.ill:
                length = self.lengths[random.randrange(len(self.lengths))]
                near = [item for item in items if abs(self.lengths[item] - length) < 2]  # ill: slow-sampler
                yield random.sample(near, BATCH)
            else:
                first = random.randrange(len(items) - BATCH)
                yield items[first : first + BATCH]


def collate(rows):
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


data = Sequences()
loader = DataLoader(data, batch_sampler=SimilarLengths(data.lengths), collate_fn=collate)
net = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
warm, begin, step = args.steps // 5, 0.0, 0
for batch in loader:
    loss = (net(batch).mean(1) - batch.mean((1, 2))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if step == warm:
        begin, cpu = time.perf_counter(), time.process_time()
    if step == args.steps:
        break
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
