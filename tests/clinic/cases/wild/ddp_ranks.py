"""Data-parallel training with gloo in which one rank can be ill: `ddp_ranks.py ILLNESS RANK [OPTIONS]`.

The script starts its ranks itself (`mp.spawn`), unless torchrun did. Illnesses, all of rank RANK:

- `none`: every rank does the same. Expected: no rank makes the others wait.
- `loader`: `Samples.__getitem__` sleeps, so that a batch takes 32 ms. Expected: input at `time.sleep`.
- `collate`: the same time is spent in Python by `collate`. Expected: input.
- `compute`: matrix products before the forward pass. Expected: computing at `extra_products`.
- `backward`: the same matrix products in the backward pass, where the other ranks wait too.
- `sleep`: 25 ms of `time.sleep` between the steps. Expected: waiting at `doze`.
- `python`: 25 ms of a Python loop between the steps. Expected: Python at `spin`.
- `checkpoint`: `torch.save` of 24 MB to a file every 4th step. Expected: checkpoint at `save`.
- `log`: 25 ms of `logging` to a file between the steps. Expected: logging.

`--exchange` chooses how gradients are averaged: by DDP, by DDP with a model whose buffers rank 0 broadcasts in each
forward pass, by `all_reduce` of each gradient, or by asynchronous ones with `wait()`.

The truth is the script's own clock: each rank prints the seconds per step in its own part of the step, that is without
the backward pass, in which ranks wait for each other, and the seconds of the part that is ill.
"""

import argparse
import logging
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

BATCH, WIDTH = 16, 128
LOADER_SLEEP, PAUSE = 0.002, 0.025


class Samples(Dataset):
    def __init__(self, length, sleep):
        self.length, self.sleep = length, sleep
        self.inputs = torch.randn(256, WIDTH, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.sleep:
            time.sleep(self.sleep)
        return self.inputs[index % 256], float(index % 2)


def slow_collate(rows):
    spin(PAUSE)
    return torch.utils.data.default_collate(rows)


class SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(context, inputs):
        return inputs.clone()

    @staticmethod
    def backward(context, gradients):
        extra_products()
        return gradients


def extra_products():
    left = torch.ones(512, 512)
    end = time.perf_counter() + PAUSE
    while time.perf_counter() < end:
        left @ left


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(500))


def doze():
    time.sleep(PAUSE)


def write_log(logger):
    end = time.perf_counter() + PAUSE
    while time.perf_counter() < end:
        logger.info("a line about the step")


def save(step, payload, path):
    if step % 4 == 0:
        torch.save(payload, path)


def average_gradients(model, exchange, ranks):
    """Average the gradients without DDP, one collective for each parameter."""
    works = [dist.all_reduce(each.grad, async_op=exchange == "async") for each in model.parameters()]
    for work in works if exchange == "async" else ():
        work.wait()
    for each in model.parameters():
        each.grad /= ranks


def train(rank, ranks, illness, ill, steps, exchange):
    torch.set_num_threads(1)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    mine = illness if rank == ill else "none"
    norm = [torch.nn.BatchNorm1d(256)] if exchange == "ddp-buffers" else []
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 256), *norm, torch.nn.ReLU(), torch.nn.Linear(256, 1))
    parallel = DistributedDataParallel(model) if exchange.startswith("ddp") else model
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    data = Samples(steps * BATCH, LOADER_SLEEP if mine == "loader" else 0)
    loader = DataLoader(data, BATCH, collate_fn=slow_collate if mine == "collate" else None)
    folder = tempfile.mkdtemp()
    logging.basicConfig(filename=f"{folder}/log", level=logging.INFO)
    logger, payload = logging.getLogger("ranks"), torch.zeros(6_000_000)
    own = 0.0
    began = mark = time.perf_counter()
    for step, (inputs, targets) in enumerate(loader):
        if mine == "compute":
            extra_products()
        if mine == "backward":
            inputs.requires_grad_()
            inputs = SlowBackward.apply(inputs)
        loss = (parallel(inputs).squeeze(1) - targets).square().mean()
        optimizer.zero_grad()
        own += time.perf_counter() - mark
        loss.backward()
        if not exchange.startswith("ddp"):
            average_gradients(model, exchange, ranks)
        mark = time.perf_counter()
        optimizer.step()
        if mine == "sleep":
            doze()
        if mine == "python":
            spin(PAUSE)
        if mine == "log":
            write_log(logger)
        if mine == "checkpoint":
            save(step, payload, f"{folder}/model.pt")
    wall = time.perf_counter() - began
    print(f"rank {rank}: {1e3 * wall / steps:.2f} ms a step, {1e3 * own / steps:.2f} ms outside backward", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("illness", nargs="?", default="none")
    parser.add_argument("rank", nargs="?", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--exchange", choices=("ddp", "ddp-buffers", "all-reduce", "async"), default="ddp")
    args = parser.parse_args()
    rest = args.illness, args.rank, args.steps, args.exchange
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), *rest)
    else:
        import socket

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ["MASTER_PORT"] = str(free.getsockname()[1])
        mp.spawn(train, (args.ranks, *rest), nprocs=args.ranks)
