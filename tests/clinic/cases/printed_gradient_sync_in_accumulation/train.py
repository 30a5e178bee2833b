"""Train on two ranks, and sum the gradients of four small batches before each update."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, PARTS = 25, 4


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    network = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(PARTS):
            loss = model(torch.randn(8, 256)).square().mean() / PARTS
            loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
