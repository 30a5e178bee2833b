"""Train many small layers with an optimizer that has a group of parameters for each tensor."""

import time

import torch
from torch import nn

STEPS = 100


def main():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(24, 24) for _ in range(60)))
    groups = [{"params": [parameter], "weight_decay": 0.01} for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(STEPS):
        loss = model(torch.randn(8, 24)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}, {len(groups)} groups")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
