"""Fit a small classifier of a table with three columns by an estimator."""

import sys
import time

import torch
from estimators import NetClassifier
from torch import nn


class TwoLayers(nn.Module):
    def __init__(self, hidden=85):
        super().__init__()
        self.first = nn.Linear(3, hidden)
        self.second = nn.Linear(hidden, 2)

    def forward(self, rows):
        return self.second(torch.relu(self.first(rows)))


def make_table(rows):
    table = torch.randn(rows, 3)
    return table, (table[:, 0] * table[:, 1] > table[:, 2]).long()


def main():
    torch.manual_seed(0)
    rows, classes = make_table(2400)
    options = {"callbacks": []} if "--bare" in sys.argv else {}
    net = NetClassifier(TwoLayers(), lr=0.1, epochs=45, batch_size=20, **options)
    begin, cpu = time.perf_counter(), time.process_time()
    net.fit(rows, classes)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    right = (net.module(rows).argmax(1) == classes).float().mean().item()
    print(f"accuracy {right:.3f} after {len(net.history)} epochs")
    print(f"trained in {seconds:.3f} s, {cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
