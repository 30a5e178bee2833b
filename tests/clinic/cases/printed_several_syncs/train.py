"""Train a classifier on a GPU, and read its loss and the norm of its gradients in each step."""

import torch
from torch import nn

STEPS = 40


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(2048, 64, device="cuda")
    labels = inputs[:, :10].argmax(1)
    history = []
    for step in range(STEPS):
        part = slice(64 * (step % 32), 64 * (step % 32) + 64)
        loss = nn.functional.cross_entropy(model(inputs[part]), labels[part])
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.get_total_norm([each.grad for each in model.parameters()])
        optimizer.step()
        loss_value = loss.item()
        norm_value = norm.item()
        history.append((loss_value, norm_value))
    print(f"loss {history[-1][0]:.4f}, norm {history[-1][1]:.4f}")


if __name__ == "__main__":
    main()
