"""Train many small layers with an optimizer that updates one tensor after the other."""

import time

import torch
from torch import nn

STEPS = 100


def main():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(24, 24) for _ in range(60)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(STEPS):
        loss = model(torch.randn(8, 24)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
