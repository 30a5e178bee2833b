"""Two ranks that train one model with DistributedDataParallel and gloo; the first one starts the second.

`--ill` makes it ill, `--cured` has the same work without the illness; without either it is healthy.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

MICRO_BATCHES = 4


def filter_rows(rows):
    """Clamps outliers, one value after the other."""
    return torch.tensor([[max(-2.0, min(2.0, value)) for value in row.tolist()] for row in rows])  # ill: filter


def train(rank, arguments):
    ill, cases = set(arguments.ill), {*arguments.ill, *arguments.cured}
    torch.manual_seed(rank)
    accumulates = "gradient-sync-in-accumulation" in cases
    width = 1024 if accumulates else 512
    network = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    parts = MICRO_BATCHES if accumulates else 1
    size = 8 if accumulates else 64
    warm, began = arguments.steps // 5, 0.0
    for step in range(1, arguments.steps + 1):
        if step == warm:
            began, cpu = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        for part in range(parts):
            x, labels = torch.randn(size, 256), torch.randint(0, 10, (size,))
            for _ in range(8 if "straggling-rank" in ill and rank == 1 else 0):
                x = filter_rows(x)  # ill: straggling-rank
            is_last = part == parts - 1 or "gradient-sync-in-accumulation" in ill
            with contextlib.nullcontext() if is_last else model.no_sync():
                loss = nn.functional.cross_entropy(model(x), labels) / parts  # ill: forward
                loss.backward()  # ill: gradient-sync-in-accumulation
        optimizer.step()
    if rank == 0:
        print(f"trained in {time.perf_counter() - began:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--ill", action="append", default=[])
    parser.add_argument("--cured", action="append", default=[])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rank, second = int(os.environ.get("RANK", "0")), None
    with tempfile.TemporaryDirectory() as folder:
        file = os.environ.setdefault("RANKS_FILE", f"{folder}/ranks")
        if rank == 0:
            second = subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": "1"})
        dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
        train(rank, arguments)
        dist.destroy_process_group()
        if second is not None:
            second.wait()


if __name__ == "__main__":
    main()
