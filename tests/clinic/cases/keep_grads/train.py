"""Train a small residual classifier of pictures with a runner and its callbacks."""

import sys
import time

import torch
from pictrain import LogLoss, Runner
from torch import nn

TO_NONE = "--to-none" in sys.argv


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, maps):
        return torch.relu(maps + self.body(maps))


def network(channels=24, blocks=2):
    stem = [nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()]
    tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    return nn.Sequential(*stem, *(Residual(channels) for _ in range(blocks)), *tail)


def pictures(batches, size=32):
    for _ in range(batches):
        labels = torch.randint(10, (size,))
        yield torch.randn(size, 3, 24, 24) + labels[:, None, None, None] / 10, labels


if __name__ == "__main__":
    torch.manual_seed(3)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    runner = Runner(model, optimizer, nn.CrossEntropyLoss(), [LogLoss(every=8)], grads_to_none=TO_NONE)
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(2):
        runner.epoch(pictures(16))
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
