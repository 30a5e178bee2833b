"""Train a classifier on the CPU of a machine with a GPU."""

import torch
from torch import nn

STEPS = 40


def main():
    torch.manual_seed(0)
    inputs = torch.randn(2048, 256)
    labels = inputs[:, :10].argmax(1)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(STEPS):
        part = slice(256 * (step % 8), 256 * (step % 8) + 256)
        loss = nn.functional.cross_entropy(model(inputs[part]), labels[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
