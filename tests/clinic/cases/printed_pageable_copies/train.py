"""Train a classifier on a GPU with batches of a loader."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 40


def main():
    torch.manual_seed(0)
    device = torch.device("cuda")
    inputs = torch.randn(64 * STEPS, 128)
    loader = DataLoader(TensorDataset(inputs), batch_size=64)
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for (batch,) in loader:
        batch = batch.to(device)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
