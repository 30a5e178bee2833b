"""Train a deep and narrow network on a GPU, whose kernels take less time than their launches."""

import torch
from torch import nn

STEPS = 30


class Block(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        y = self.linear(self.norm(x))
        return x + y * torch.sigmoid(y) * 0.5


def main():
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(16)), nn.Linear(32, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(32, 32, device="cuda")
    for step in range(STEPS):
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
