"""Predict the activity of molecules in assays from folded fingerprints; both matrices are sparse."""

import time

import numpy as np
import scipy.sparse
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FOLDS, ASSAYS = 6000, 60


def make_matrices(molecules):
    """Fingerprints with about 50 substructures, and activities of -1 or 1 in a few assays."""
    rng = np.random.default_rng(8)
    fingerprints = scipy.sparse.random(molecules, FOLDS, 50 / FOLDS, format="csr", dtype=np.float32, rng=rng)
    fingerprints.data[:] = 1.0
    activities = scipy.sparse.random(molecules, ASSAYS, 0.1, format="csr", dtype=np.float32, rng=rng)
    scores = fingerprints @ rng.standard_normal((FOLDS, ASSAYS)).astype(np.float32)
    rows = np.repeat(np.arange(molecules), np.diff(activities.indptr))
    activities.data[:] = np.where(scores[rows, activities.indices] > 0, 1.0, -1.0)
    return fingerprints, activities


class ActivityData(Dataset):
    def __init__(self, fingerprints, activities):
        self.x, self.y = fingerprints, activities

    def __len__(self):
        return self.x.shape[0]

    def __getitem__(self, index):
        return {
            "x_columns": self.x[index].indices,
            "y_columns": self.y[index].indices,
            "y_values": (self.y[index].data + 1) / 2,
        }


def collate(molecules):
    """Offsets for the bag of substructures, and the places of the known activities."""
    lengths = np.array([len(one["x_columns"]) for one in molecules])
    measured = np.array([len(one["y_columns"]) for one in molecules])
    return {
        "x": torch.from_numpy(np.concatenate([one["x_columns"] for one in molecules]).astype(np.int64)),
        "offsets": torch.from_numpy(np.cumsum(lengths) - lengths),
        "rows": torch.from_numpy(np.repeat(np.arange(len(molecules)), measured)),
        "columns": torch.from_numpy(np.concatenate([one["y_columns"] for one in molecules]).astype(np.int64)),
        "values": torch.from_numpy(np.concatenate([one["y_values"] for one in molecules])),
    }


class ActivityNet(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.input = nn.EmbeddingBag(FOLDS, hidden, mode="sum")
        self.output = nn.Sequential(nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, ASSAYS))

    def forward(self, x, offsets):
        return self.output(self.input(x, offsets))


class Trainer:
    def __init__(self, net, loader):
        self.net, self.loader = net, loader
        self.loss = nn.BCEWithLogitsLoss()
        self.optimizer = torch.optim.Adam(net.parameters(), lr=3e-3, foreach=True)

    def step(self, batch):
        logits = self.net(batch["x"], batch["offsets"])[batch["rows"], batch["columns"]]
        loss = self.loss(logits, batch["values"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, epochs):
        for epoch in range(1, epochs + 1):
            losses = [self.step(batch) for batch in self.loader]
            print(f"epoch {epoch}: loss {np.mean(losses):.4f}")


def main():
    torch.manual_seed(8)
    data = ActivityData(*make_matrices(4000))
    loader = DataLoader(data, batch_size=100, shuffle=True, collate_fn=collate)
    trainer = Trainer(ActivityNet(), loader)
    begin, cpu = time.perf_counter(), time.process_time()
    trainer.fit(5)
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
