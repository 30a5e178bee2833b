"""Train an action policy by micro-batches on several ranks."""

import argparse
import os
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class ActionPolicy(nn.Module):
    def __init__(self, width=512, horizon=8):
        super().__init__()
        self.vision = nn.Sequential(nn.Linear(256, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.plan = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, horizon * 7))

    def forward(self, pixels, actions):
        predicted = self.plan(self.vision(pixels)).view_as(actions)
        return nn.functional.smooth_l1_loss(predicted, actions)


class Trainer:
    """One update of the weights from several micro-batches."""

    def __init__(self, options):
        self.options = options
        self.model = DistributedDataParallel(ActionPolicy())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def accumulate(self, is_last):
        return nullcontext() if is_last else self.model.no_sync()

    def micro_step(self, batch, is_last):
        if self.options.whole:
            with self.accumulate(is_last):
                loss = self.model(*batch) / self.options.micro
                loss.backward()
        else:
            loss = self.model(*batch).div(self.options.micro)
            with self.accumulate(is_last):
                loss.backward()
        return loss.detach()

    def step(self, batches):
        self.optimizer.zero_grad()
        total = torch.zeros(())
        for number, batch in enumerate(batches, 1):
            total += self.micro_step(batch, number == len(batches))
        self.optimizer.step()
        return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--micro", type=int, default=8)
    parser.add_argument("--whole", action="store_true", help="accumulate around the whole micro-step")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(int(os.environ["RANK"]))
    trainer = Trainer(options)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(options.steps):
        batches = [(torch.randn(4, 256), torch.randn(4, 8, 7)) for _ in range(options.micro)]
        loss = trainer.step(batches)
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}: {loss.item():.4f}")
    if dist.get_rank() == 0:
        print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
