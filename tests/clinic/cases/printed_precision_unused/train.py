"""Train a network of large products on a GPU in float32."""

import torch
from torch import nn

STEPS = 10


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
    seen = []
    model[2].register_forward_hook(lambda module, args, output: seen.append(output.dtype))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(128, 512, device="cuda")
    labels = torch.randint(10, (128,), device="cuda")
    for step in range(STEPS):
        loss = criterion(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}, products in {seen[-1]}")


if __name__ == "__main__":
    main()
