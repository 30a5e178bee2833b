"""Train a classifier on a GPU with batches that NumPy makes of the loader's rows."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 40


def augment(rows, noise):
    changed = rows.numpy() + noise.normal(scale=0.1, size=rows.shape)
    return torch.from_numpy(changed.astype(np.float32))


def main():
    torch.manual_seed(0)
    noise = np.random.default_rng(0)
    device = torch.device("cuda")
    inputs = torch.randn(64 * STEPS, 128)
    loader = DataLoader(TensorDataset(inputs), batch_size=64)
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for (rows,) in loader:
        batch = augment(rows, noise)
        batch = batch.to(device)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
