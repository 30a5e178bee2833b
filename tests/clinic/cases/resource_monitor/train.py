"""Benchmark the training of a small convolutional network while a monitor records the process."""

import sys
import time
from pathlib import Path

import torch
from torch import nn
from watchtower import Monitor

PAUSE = 0.5 if "--half-second" in sys.argv else 0.0


def usage():
    """The use of memory and of cores, as the system tells it."""
    fields = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    status = dict(line.split(":", 1) for line in fields if ":" in line)
    load = Path("/proc/loadavg").read_text(encoding="utf-8").split()[0]
    return {"rss_kb": int(status["VmRSS"].split()[0]), "threads": int(status["Threads"]), "load": float(load)}


class Bench:
    def __init__(self):
        torch.manual_seed(42)
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(32, 10),
        )  # fmt: skip
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9, foreach=False)
        self.rates = []

    def batches(self, count):
        for _ in range(count):
            yield torch.randn(4, 3, 16, 16), torch.randint(10, (4,))

    def epoch(self, count):
        begin = time.perf_counter()
        for images, labels in self.batches(count):
            loss = nn.functional.cross_entropy(self.net(images), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.rates.append(4 * count / (time.perf_counter() - begin))
        return loss.item()


def main():
    bench = Bench()
    with Monitor(usage, delay=PAUSE) as monitor:
        begin, cpu = time.perf_counter(), time.process_time()
        for number in range(4):
            loss = bench.epoch(150)
            print(f"epoch {number}: loss {loss:.3f}, {bench.rates[-1]:.0f} images/s")
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    print(f"peak {max(sample['rss_kb'] for sample in monitor.samples)} kB in {len(monitor.samples)} samples")
    print(f"trained in {seconds:.3f} s, {cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
