"""Train a compiled network that reads a value of its activations."""

import time

import torch
from torch import nn

STEPS = 200


class Block(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        y = self.linear(x)
        if y.abs().max().item() > 1e6:
            y = y / 2
        return x + y.relu()


def main():
    torch.manual_seed(0)
    torch.compiler.set_default_backend("eager")
    model = nn.Sequential(*(Block() for _ in range(6)), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    compiled = torch.compile(model)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(STEPS):
        loss = compiled(torch.randn(16, 32)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
