"""Predict which customers leave: categories and amounts, a combiner, and statistics of each split after each epoch."""

import argparse
import time

import numpy as np
import torch
from torch import nn

SIZES = (12, 40, 7, 90, 5, 24)


def make_customers(count, rng):
    """Categories, amounts and who left."""
    categories = np.stack([rng.integers(size, size=count) for size in SIZES], 1)
    amounts = rng.lognormal(size=(count, 8)).astype(np.float32)
    score = (categories[:, 0] % 3 == 1) + 0.4 * amounts[:, 0] - 0.5 * (categories[:, 3] > 45) + rng.normal(size=count)
    return categories, np.log1p(amounts), (score > 0.9).astype(np.float32)


class Batcher:
    """Batches of columns in random or given order."""

    def __init__(self, columns, batch_size, rng=None):
        self.columns, self.batch_size, self.rng = [torch.from_numpy(column) for column in columns], batch_size, rng

    def __iter__(self):
        count = len(self.columns[0])
        order = torch.arange(count) if self.rng is None else torch.from_numpy(self.rng.permutation(count))
        for rows in order.split(self.batch_size):
            yield [column[rows] for column in self.columns]


class Churn(nn.Module):
    def __init__(self, width=8, hidden=160):
        super().__init__()
        self.encoders = nn.ModuleList(nn.Embedding(size, width) for size in SIZES)
        self.combiner = nn.Sequential(
            nn.Linear(width * len(SIZES) + 8, hidden), nn.LayerNorm(hidden), nn.GELU(),
            nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.GELU(), nn.Linear(hidden, 1),
        )  # fmt: skip

    def forward(self, categories, amounts):
        found = [encoder(column) for encoder, column in zip(self.encoders, categories.T, strict=True)]
        return self.combiner(torch.cat([*found, amounts], 1)).squeeze(1)


class Statistics:
    """Loss, accuracy and the area under the curve of one split."""

    def __init__(self):
        self.scores, self.left, self.total = [], [], 0.0

    def update(self, logits, left, loss):
        self.scores.append(logits.detach())
        self.left.append(left)
        self.total += loss.item() * len(left)

    def compute(self):
        scores, left = torch.cat(self.scores), torch.cat(self.left)
        ranks = torch.empty_like(scores)
        ranks[scores.argsort()] = torch.arange(1.0, len(scores) + 1)
        positive = left.sum()
        area = (ranks[left > 0].sum() - positive * (positive + 1) / 2) / (positive * (len(left) - positive))
        right = ((scores > 0) == (left > 0)).float().mean()
        return f"loss {self.total / len(left):.4f}, accuracy {right:.4f}, roc_auc {area:.4f}"


class Trainer:
    def __init__(self, model, splits, evaluates_training_set):
        self.model, self.splits, self.evaluates_training_set = model, splits, evaluates_training_set
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.criterion = nn.BCEWithLogitsLoss()

    def train_epoch(self):
        self.model.train()
        statistics = Statistics()
        for categories, amounts, left in self.splits["training"]:
            logits = self.model(categories, amounts)
            loss = self.criterion(logits, left)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if not self.evaluates_training_set:
                statistics.update(logits, left, loss)
        return statistics

    @torch.no_grad()
    def evaluate(self, split):
        self.model.eval()
        statistics = Statistics()
        for categories, amounts, left in self.splits[split]:
            logits = self.model(categories, amounts)
            statistics.update(logits, left, self.criterion(logits, left))
        return statistics

    def train(self, epochs):
        for epoch in range(epochs):
            seen = self.train_epoch()
            if self.evaluates_training_set:
                seen = self.evaluate("training")
            print(f"epoch {epoch} training: {seen.compute()}")
            print(f"epoch {epoch} validation: {self.evaluate('validation').compute()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--skip-training-set", action="store_true", help="statistics of training as it goes")
    torch.manual_seed(9)
    rng = np.random.default_rng(9)
    splits = {"training": Batcher(make_customers(20_000, rng), 1000, rng)}
    splits["validation"] = Batcher(make_customers(2_000, rng), 1000)
    trainer = Trainer(Churn(), splits, not parser.parse_args().skip_training_set)
    begin, cpu = time.perf_counter(), time.process_time()
    trainer.train(18)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
