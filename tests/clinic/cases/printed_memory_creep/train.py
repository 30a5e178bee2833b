"""Train a network, and keep the losses of a validation after each step."""

import time

import torch
from torch import nn

STEPS = 60


def main():
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    held_out = torch.randn(1024, 256)
    history = []
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(STEPS):
        loss = model(torch.randn(64, 256)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = model(held_out).square().mean()
        history.append(loss)
    print(f"loss {torch.stack(history).mean().item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
