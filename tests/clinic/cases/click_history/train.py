"""Will the next item be clicked? Each item of a user's history is scored, and attention weighs the scores."""

import argparse
import itertools
import time

import torch
from torch import nn

TABLES = [400, 300, 50, 12]
DENSE, WIDTH, HISTORY, BATCH = 3, 16, 20, 64


def mlp(*sizes):
    layers = []
    for entering, leaving in itertools.pairwise(sizes):
        layers += [nn.Linear(entering, leaving), nn.ReLU()]
    return nn.Sequential(*layers)


class ItemModel(nn.Module):
    """Dense features and categories of one item, with the products of each pair."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, WIDTH, mode="sum") for rows in TABLES)
        self.bottom = mlp(DENSE, 32, WIDTH)
        pairs = torch.tril_indices(len(TABLES) + 1, len(TABLES) + 1, offset=-1)
        self.register_buffer("pairs", pairs)
        self.top = mlp(WIDTH + pairs.shape[1], 48, WIDTH)

    def forward(self, dense, categories):
        bottom = self.bottom(dense)
        vectors = [bottom] + [table(categories[:, index, None]) for index, table in enumerate(self.tables)]
        stacked = torch.stack(vectors, dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        return self.top(torch.cat([bottom, products[:, self.pairs[0], self.pairs[1]]], dim=1))


class HistoryModel(nn.Module):
    def __init__(self, run_fast):
        super().__init__()
        self.run_fast = run_fast
        self.items = ItemModel()
        self.attention = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head = nn.Sequential(nn.Linear(2 * WIDTH, 32), nn.ReLU(), nn.Linear(32, 1))

    def encode(self, dense, categories):
        batch, length = dense.shape[:2]
        if self.run_fast:
            return self.items(dense.flatten(0, 1), categories.flatten(0, 1)).view(batch, length, WIDTH)
        encoded = torch.zeros(batch, length, WIDTH)
        for step in range(length):
            encoded[:, step] = self.items(dense[:, step], categories[:, step])
        return encoded

    def forward(self, dense, categories):
        encoded = self.encode(dense, categories)
        past, candidate = encoded[:, :-1], encoded[:, -1]
        weights = torch.softmax((past @ self.attention(candidate)[:, :, None])[:, :, 0], dim=1)
        context = (weights[:, :, None] * past).sum(1)
        return self.head(torch.cat([context, candidate], dim=1))[:, 0]


def main(cured):
    torch.manual_seed(17)
    users = 1600
    dense = torch.rand(users, HISTORY, DENSE)
    categories = torch.stack([torch.randint(rows, (users, HISTORY)) for rows in TABLES], dim=2)
    clicks = (dense[:, -1, 0] + 0.3 * (categories[:, -1, 3] % 2) > 0.6).float()
    model = HistoryModel(run_fast=cured)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.BCEWithLogitsLoss()
    begin, cpu = time.perf_counter(), time.process_time()
    for epoch in range(4):
        losses = []
        for chosen in torch.randperm(users).split(BATCH):
            loss = criterion(model(dense[chosen], categories[chosen]), clicks[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cured", action="store_true", help="encode the whole history at once")
    main(parser.parse_args().cured)
