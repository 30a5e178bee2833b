"""Train a model of purchases whose table of items is large, while a batch has few of them."""

import time

import torch
from torch import nn

ITEMS = 200_000
STEPS = 40


class Purchases(nn.Module):
    """Scores the next item by the mean of the last ones."""

    def __init__(self, width):
        super().__init__()
        self.items = nn.Embedding(ITEMS, width)
        self.head = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, last):
        return self.head(self.items(last).mean(dim=1)).squeeze(-1)


def main():
    torch.manual_seed(0)
    model = Purchases(48)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(STEPS):
        last = torch.randint(ITEMS, (64, 10))
        loss = nn.functional.mse_loss(model(last), (last.float().mean(dim=1) / ITEMS))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
