"""Predict incomes with attentive selections of columns; the loader collates single rows of a table in memory."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COLUMNS, CLASSES = 64, 2


class TableDataset(Dataset):
    """One row of the table and its label."""

    def __init__(self, rows, labels):
        self.rows, self.labels = rows, labels

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], self.labels[index]


class SlicedLoader:
    """Batches as slices of shuffled tensors, without a dataset."""

    def __init__(self, rows, labels, batch_size):
        self.rows, self.labels, self.batch_size = torch.from_numpy(rows), torch.from_numpy(labels), batch_size

    def __iter__(self):
        order = torch.randperm(len(self.rows))
        rows, labels = self.rows[order], self.labels[order]
        last = len(order) - self.batch_size + 1
        for begin in range(0, last, self.batch_size):
            yield rows[begin : begin + self.batch_size], labels[begin : begin + self.batch_size]


class GatedLayer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear, self.norm = nn.Linear(inputs, 2 * outputs), nn.BatchNorm1d(2 * outputs)

    def forward(self, values):
        return nn.functional.glu(self.norm(self.linear(values)))


class Selector(nn.Module):
    """Decisions in turns; each turn chooses its columns by an attention that spares those of earlier turns."""

    def __init__(self, width=320, turns=4):
        super().__init__()
        self.first = GatedLayer(COLUMNS, width)
        self.turns = nn.ModuleList(
            nn.ModuleDict({
                "mask": nn.Linear(width, COLUMNS),
                "layers": nn.Sequential(GatedLayer(COLUMNS, width), GatedLayer(width, width), GatedLayer(width, width)),
            })
            for _ in range(turns)
        )  # fmt: skip
        self.head = nn.Linear(width, CLASSES)

    def forward(self, rows):
        state, prior, decision = self.first(rows), torch.ones_like(rows), 0.0
        for turn in self.turns:
            mask = torch.softmax(turn["mask"](state) * prior, dim=1)
            prior = prior * (1.3 - mask)
            state = turn["layers"](mask * rows)
            decision = decision + torch.relu(state)
        return self.head(decision)


def make_table(count):
    """Columns of a census; few of them tell the income."""
    rng = np.random.default_rng(12)
    rows = rng.normal(size=(count, COLUMNS)).astype(np.float32)
    return rows, (rows[:, 3] * rows[:, 8] + rows[:, 21] > 0.2).astype(np.int64)


def fit(model, loader, epochs):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        total, right, count = 0.0, 0, 0
        for rows, labels in loader:
            logits = model(rows)
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
            right += int((logits.argmax(1) == labels).sum())
            count += len(labels)
        print(f"epoch {epoch}: loss {total / count:.4f}, accuracy {right / count:.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sliced", action="store_true", help="slice the table instead of collating its rows")
    options = parser.parse_args()
    torch.manual_seed(12)
    rows, labels = make_table(8192)
    if options.sliced:
        loader = SlicedLoader(rows, labels, 512)
    else:
        loader = DataLoader(TableDataset(rows, labels), batch_size=512, shuffle=True, drop_last=True)
    begin, cpu = time.perf_counter(), time.process_time()
    fit(Selector(), loader, 3)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
