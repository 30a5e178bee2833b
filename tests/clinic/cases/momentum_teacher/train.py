"""Train a small encoder against a slowly moving copy of itself."""

import copy
import sys
import time

import torch
from torch import nn

CURED = "--cured" in sys.argv
STEPS = 250


class Encoder(nn.Module):
    def __init__(self, width=128, depth=12):
        super().__init__()
        blocks = [nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(depth)]
        self.body = nn.Sequential(nn.Linear(48, width), *blocks)
        self.head = nn.Linear(width, 512)

    def forward(self, views):
        return self.head(self.body(views))


@torch.no_grad()
def follow(teacher, student, keep):
    if CURED:
        torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1.0 - keep)
        return
    for old, new in zip(teacher.parameters(), student.parameters()):
        old.data = old.data * keep + new.data * (1.0 - keep)


def main():
    torch.manual_seed(0)
    student = Encoder()
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(STEPS):
        views = torch.randn(2, 8, 48)
        with torch.no_grad():
            target = teacher(views[0]).softmax(-1)
        loss = -(target * student(views[1]).log_softmax(-1)).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow(teacher, student, 0.996)
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
