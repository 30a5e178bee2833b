"""Two ranks that train one model with gloo, and gather metrics; the first one starts the second.

`--ill exchange-after-update` gathers them in each step, `--cured exchange-after-update` in each 50th one.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def gather(metrics):
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, metrics)  # ill: exchange-after-update
    return {name: sum(each[name] for each in every) / len(every) for name in metrics}


def train(rank, arguments):
    torch.manual_seed(rank)
    network = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    warm, began = arguments.steps // 5, 0.0
    for step in range(1, arguments.steps + 1):
        if step == warm:
            began, cpu = time.perf_counter(), time.process_time()
        x, labels = torch.randn(64, 256), torch.randint(0, 10, (64,))
        optimizer.zero_grad()
        output = model(x)
        loss = nn.functional.cross_entropy(output, labels)
        loss.backward()
        optimizer.step()
        if arguments.ill or step % 50 == 0:
            hits = (output.argmax(1) == labels).float().mean()
            gather({"loss": loss.item(), "accuracy": hits.item()})  # ill: call
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
