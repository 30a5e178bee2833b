"""Train a factorization of users and items, and rank all items for each user after each epoch."""

import math
import signal
import sys
import time

import torch
from torch import nn


class Factors(nn.Module):
    def __init__(self, users, items, width=32):
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)

    def forward(self, user, item):
        return (self.users(user) * self.items(item)).sum(-1)


def largest(scores, count):
    """Items with the largest scores, the best one first."""
    return sorted(range(len(scores)), key=scores.__getitem__, reverse=True)[:count]


@torch.no_grad()
def evaluate(model, wanted, count=20):
    table = model.items.weight.T
    if "--at-once" in sys.argv:
        ranked = torch.cat([(part @ table).topk(count).indices for part in model.users.weight.split(256)]).tolist()
    else:
        ranked = (largest((row @ table).tolist(), count) for row in model.users.weight)
    return sum(1 / math.log2(row.index(item) + 2) for row, item in zip(ranked, wanted) if item in row) / len(wanted)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    torch.manual_seed(0)
    users, items = 8000, 20_000
    wanted, model = torch.randint(items, (users,)).tolist(), Factors(users, items)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    begin, cpu = time.perf_counter(), time.process_time()
    try:
        for _ in range(12):
            user, (liked, other) = torch.randint(users, (512,)), torch.randint(items, (2, 512))
            loss = -nn.functional.logsigmoid(model(user, liked) - model(user, other)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"loss {loss.item():.4f}", flush=True)
        print(f"gain of the ranking {evaluate(model, wanted):.5f}")
    finally:
        print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


main()
