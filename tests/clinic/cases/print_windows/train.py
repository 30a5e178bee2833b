"""Train a classifier; every ten batches the speed and the loss of the last batches are printed."""

import time

import torch
from torch import nn

PRINT_FREQ = 10


class Meter:
    """The last value and the mean of what it was given."""

    def __init__(self):
        self.last, self.total, self.count = 0.0, 0.0, 0

    def update(self, value, count=1):
        self.last = value
        self.total += value * count
        self.count += count

    @property
    def mean(self):
        return self.total / self.count


def accuracy(scores, labels, best=3):
    found = scores.topk(best, dim=1).indices
    return (found == labels.unsqueeze(1)).any(dim=1).float().mean()


def train(net, optimizer, batches):
    speed, losses, right = Meter(), Meter(), Meter()
    begin = time.perf_counter()
    for number, (images, labels) in enumerate(batches, 1):
        scores = net(images)
        loss = nn.functional.cross_entropy(scores, labels, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if number % PRINT_FREQ == 0:
            losses.update(loss.item(), len(images))
            right.update(accuracy(scores.detach(), labels).item(), len(images))
            torch.cuda.synchronize()
            speed.update((time.perf_counter() - begin) / PRINT_FREQ, PRINT_FREQ)
            begin = time.perf_counter()
            print(f"[{number}] loss {losses.last:.4f} ({losses.mean:.4f}), top 3 {right.mean:.3f}", speed.count)


def synthetic(number, size, classes):
    for _ in range(number):
        images = torch.randn(size, 3, 10, 10, device="cuda")
        yield images, torch.randint(0, classes, (size,), device="cuda")


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, 10)).to("cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    train(net, optimizer, synthetic(30, 8, 10))
