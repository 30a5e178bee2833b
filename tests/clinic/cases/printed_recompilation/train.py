"""Train a compiled network on texts of many lengths."""

import time

import torch
from torch import nn

STEPS = 16


def main():
    torch.manual_seed(0)
    torch.compiler.set_default_backend("eager")
    torch._dynamo.config.recompile_limit = STEPS
    layers = [layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.GELU())]
    model = nn.Sequential(nn.Embedding(100, 32), *layers, nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    compiled = torch.compile(model, dynamic=False)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(STEPS):
        loss = compiled(torch.randint(100, (4, 20 + step))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
