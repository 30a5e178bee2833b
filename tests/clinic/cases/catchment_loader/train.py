"""Train an LSTM on the discharge of catchments; loader workers bring gappy hourly series to regular features."""

import os
import sys
import time

if "--one-each" in sys.argv:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HOURS = 336


class Catchments(Dataset):
    """Windows of forcing data, made smooth by a Gaussian process as they are read."""

    def __init__(self, count, per_catchment):
        random = np.random.default_rng(11)
        self.series = random.normal(size=(count, HOURS * 2, 6)).cumsum(1).astype(np.float64)
        self.items = [(basin, int(random.integers(0, HOURS))) for basin in range(count) for _ in range(per_catchment)]
        hours = np.arange(HOURS)
        self.kernel = np.exp(-0.5 * ((hours[:, None] - hours) / 12.0) ** 2)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        basin, start = self.items[index]
        window = self.series[basin, start : start + HOURS]
        window = (window - window.mean(0)) / window.std(0)
        noise = 0.1 + 0.4 * np.abs(np.sin(np.arange(HOURS) + index))
        smooth = self.kernel @ np.linalg.solve(self.kernel + np.diag(noise), window)
        runoff = smooth[-1, 0] * np.exp(-np.abs(smooth[-1, 1]))
        return torch.from_numpy(smooth[::14]).float(), torch.tensor(runoff).float()


class Discharge(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.lstm = nn.LSTM(6, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, forcing):
        return self.head(self.lstm(forcing)[0][:, -1])[:, 0]


def main():
    torch.manual_seed(100)
    torch.set_num_threads(1)
    loader = DataLoader(Catchments(12, 16), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    model = Discharge()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin, cpu = time.perf_counter(), time.process_time()
    for epoch in range(2):
        total = 0.0
        for forcing, runoff in loader:
            loss = nn.functional.mse_loss(model(forcing), runoff)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
