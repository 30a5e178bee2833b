"""Train a network below torch's profiler, which makes a table again and again."""

import time

import torch
from torch import nn

STEPS = 150


def main():
    torch.manual_seed(0)
    layers = [layer for _ in range(10) for layer in (nn.Linear(64, 64), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin, cpu = time.perf_counter(), time.process_time()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=3, warmup=1, active=1),
        on_trace_ready=lambda profile: profile.key_averages().table(row_limit=5),
    ) as profile:
        for step in range(STEPS):
            loss = model(torch.randn(16, 64)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profile.step()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
