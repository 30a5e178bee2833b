"""Segment point clouds, and report how long the phases of a step take."""

import sys
import time
from collections import defaultdict

import torch
from torch import nn

BY_EVENTS = "--by-events" in sys.argv


class Stopwatch:
    """Sums up the seconds of the phases of each step."""

    def __init__(self):
        self.seconds, self.pairs = defaultdict(float), []
        self.start()

    def now(self):
        if BY_EVENTS:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            return event
        torch.cuda.synchronize()
        return time.perf_counter()

    def start(self):
        self.last = self.now()

    def lap(self, phase):
        now = self.now()
        if BY_EVENTS:
            self.pairs.append((phase, self.last, now))
        else:
            self.seconds[phase] += now - self.last
        self.last = now

    def report(self):
        torch.cuda.current_stream().synchronize()
        for phase, begin, end in self.pairs:
            self.seconds[phase] += begin.elapsed_time(end) / 1e3
        self.pairs.clear()
        return dict(self.seconds)


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 24))
        self.head = nn.Linear(48, 5)

    def forward(self, points):
        local = self.local(points)
        whole = local.amax(dim=1, keepdim=True).expand_as(local)
        return self.head(torch.cat([local, whole], dim=-1))


def train_epoch(net, optimizer, clouds, watch):
    watch.start()
    for points, labels in clouds:
        scores = net(points)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())
        watch.lap("forward")
        optimizer.zero_grad()
        loss.backward()
        watch.lap("backward")
        optimizer.step()
        watch.lap("update")
    return loss


torch.manual_seed(0)
net = PointNet().to("cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.95)
clouds = [(torch.randn(3, 40, 3, device="cuda"), torch.randint(0, 5, (3, 40), device="cuda")) for _ in range(12)]
watch = Stopwatch()
for epoch in range(2):
    loss = train_epoch(net, optimizer, clouds, watch)
    print(epoch, sorted(watch.report()), f"{loss.item():.4f}")
