"""Train a grasp quality network on stored depth images, which helpers decode ahead of the training."""

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import torch
from depthstore import Store, decode
from torch import nn

BATCH, AHEAD = 24, 6


class GraspQuality(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.pose = nn.Sequential(nn.Linear(1, 16), nn.ReLU())
        self.quality = nn.Sequential(nn.Linear(12 * 64 + 16, 128), nn.ReLU(), nn.Linear(128, 2))

    def forward(self, images, depths):
        return self.quality(torch.cat([self.image(images).flatten(1), self.pose(depths)], 1))


class Prefetcher:
    """Keeps some decoded batches ready."""

    def __init__(self, store, pool, steps):
        self.store, self.pool, self.steps = store, pool, steps

    def submit(self, number):
        records = [self.store.record((number * BATCH + item) % len(self.store)) for item in range(BATCH)]
        return self.pool.submit(decode, records)

    def __iter__(self):
        waiting = [self.submit(number) for number in range(min(AHEAD, self.steps))]
        for number in range(self.steps):
            images, depths, labels = waiting.pop(0).result()
            if number + AHEAD < self.steps:
                waiting.append(self.submit(number + AHEAD))
            yield torch.tensor(images).view(-1, 1, 32, 32), torch.tensor(depths), torch.tensor(labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--helpers", type=int, default=3)
    parser.add_argument("--processes", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(1)
    store = Store(480)
    if options.processes:
        pool = ProcessPoolExecutor(options.helpers, mp_context=multiprocessing.get_context("fork"))
    else:
        pool = ThreadPoolExecutor(options.helpers, thread_name_prefix="decode")
    net = GraspQuality()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    begin, cpu = time.perf_counter(), time.process_time()
    for images, depths, labels in Prefetcher(store, pool, 110):
        loss = nn.functional.cross_entropy(net(images, depths), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
    pool.shutdown()


if __name__ == "__main__":
    main()
