"""A training on a table that takes one batch at a time from its loader, as scripts with steps and no epochs do."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--ill", action="append", default=[], choices=["loader-started-anew"])
parser.add_argument("--cured", action="append", default=[], choices=["loader-started-anew"])
parser.add_argument("--steps", type=int, default=300)
args = parser.parse_args()
torch.manual_seed(0)
torch.set_num_threads(1)
rows = torch.randn(300_000, 64)
table = DataLoader(TensorDataset(rows, rows[:, 0] > 0), batch_size=64, shuffle=True)
net = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)


def endless(loader):
    while True:
        yield from loader


rest = endless(table)
warm, begin = args.steps // 5, 0.0
for step in range(1, args.steps + 1):
    if args.ill:
        inputs, labels = next(iter(table))  # ill: loader-started-anew
    else:
        inputs, labels = next(rest)
    loss = nn.functional.cross_entropy(net(inputs), labels.long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == warm:
        begin, cpu = time.perf_counter(), time.process_time()
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
