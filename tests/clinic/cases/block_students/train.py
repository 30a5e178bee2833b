"""Distill blocks of a teacher into cheaper ones; each rank has blocks of its own, and rank 0 reports on all."""

import argparse
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 64


def block(inner):
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, inner), nn.GELU(), nn.Linear(inner, WIDTH))


@dataclass
class Statistics:
    """What a rank tells the others about an iteration."""

    iteration: int
    losses: dict[str, float] = field(default_factory=dict)


class Stitched:
    """A teacher's block with its student, trained alone on hidden states."""

    def __init__(self, name):
        self.name = name
        self.teacher, self.student = block(256).requires_grad_(False), block(32)
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.02)

    def learn(self, hidden):
        with torch.no_grad():
            target = self.teacher(hidden)
        loss = nn.functional.mse_loss(self.student(hidden), target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach(), hidden + target


class Report:
    """Prints the losses of the blocks of all ranks now and then."""

    def __init__(self, every, at_report):
        self.every, self.at_report = every, at_report
        self.losses = {}

    def add(self, statistics):
        is_due = statistics.iteration % self.every == 0
        if self.at_report and not is_due:
            return
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, statistics)
        for one in found:
            self.losses.update(one.losses)
        if is_due and dist.get_rank() == 0:
            worst = max(self.losses, key=self.losses.get)
            print(f"iteration {statistics.iteration}: worst {worst} {self.losses[worst]:.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=1200)
    parser.add_argument("--at-report", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    blocks = [Stitched(f"block{dist.get_rank()}")]
    report = Report(300, options.at_report)
    begin, cpu = time.perf_counter(), time.process_time()
    for iteration in range(1, options.iterations + 1):
        hidden, losses = torch.randn(16, WIDTH), {}
        for one in blocks:
            loss, hidden = one.learn(hidden)
            losses[one.name] = loss.item()
        report.add(Statistics(iteration, losses))
    if dist.get_rank() == 0:
        print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
