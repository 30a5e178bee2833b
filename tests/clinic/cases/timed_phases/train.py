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
        self.marks = []

    def mark(self, phase):
        if BY_EVENTS:
            now = torch.cuda.Event(enable_timing=True)
            now.record()
        else:
            torch.cuda.synchronize()
            now = time.perf_counter()
        self.marks.append((phase, now))

    def report(self):
        torch.cuda.current_stream().synchronize()
        seconds = defaultdict(float)
        for (_, begin), (phase, end) in zip(self.marks, self.marks[1:]):
            seconds[phase] += begin.elapsed_time(end) / 1e3 if BY_EVENTS else end - begin
        return sorted(seconds)


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 24))
        self.head = nn.Linear(48, 5)

    def forward(self, points):
        local = self.local(points)
        whole = local.amax(dim=1, keepdim=True).expand_as(local)
        return self.head(torch.cat([local, whole], dim=-1))


torch.manual_seed(0)
net = PointNet().to("cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.95)
clouds = [(torch.randn(3, 40, 3, device="cuda"), torch.randint(0, 5, (3, 40), device="cuda")) for _ in range(12)]
for epoch in range(2):
    watch = Stopwatch()
    for points, labels in clouds:
        loss = nn.functional.cross_entropy(net(points).flatten(0, 1), labels.flatten())
        watch.mark("forward")
        optimizer.zero_grad()
        loss.backward()
        watch.mark("backward")
        optimizer.step()
        watch.mark("update")
    print(epoch, watch.report(), f"{loss.item():.4f}")
