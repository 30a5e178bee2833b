"""Train on rows of a file that the dataset loads for each row."""

import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, path, size):
        self.path, self.size = path, size
        np.save(path, np.random.default_rng(0).normal(size=(size, 256)).astype(np.float32))

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        rows = np.load(self.path)
        return rows[index]


def main():
    torch.manual_seed(0)
    loader = DataLoader(Rows(f"{tempfile.mkdtemp()}/rows.npy", 1600), batch_size=16)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin, cpu = time.perf_counter(), time.process_time()
    for batch in loader:
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
