"""Train a pair of generator and critic on curves, and show their losses while they learn."""

import sys
import time

import numpy as np
import torch
from panes import Board
from torch import nn

CURED = "--cured" in sys.argv


class Display:
    def __init__(self, path):
        self.board = Board(path)
        self.at, self.rows = [], []

    def show(self, progress, losses):
        self.at.append(progress)
        self.rows.append(list(losses.values()))
        first = -1 if CURED else 0
        x = np.stack([np.array(self.at[first:])] * len(losses), 1)
        y = np.array(self.rows[first:])
        self.board.line(x, y, "loss over time", list(losses), update="append" if CURED else None)


class Pair:
    def __init__(self):
        self.generator = nn.Sequential(nn.Linear(16, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 32))
        self.critic = nn.Sequential(nn.Linear(32, 96), nn.LeakyReLU(0.2), nn.Linear(96, 1))
        self.optimizers = [torch.optim.Adam(net.parameters(), lr=2e-4) for net in (self.generator, self.critic)]

    def optimize(self, real):
        fake = self.generator(torch.randn(len(real), 16))
        up, down = self.critic(real), self.critic(fake.detach())
        judge = (up - 1).square().mean() + down.square().mean()
        self.optimizers[1].zero_grad()
        judge.backward()
        self.optimizers[1].step()
        trick, near = (self.critic(fake) - 1).square().mean(), (fake - real).abs().mean()
        self.optimizers[0].zero_grad()
        (trick + 10 * near).backward()
        self.optimizers[0].step()
        return dict(
            zip(("G_trick", "G_near", "D_real", "D_fake"), torch.stack([trick, near, up.mean(), down.mean()]).tolist())
        )


torch.manual_seed(1)
pair, display = Pair(), Display("board.json")
phases = torch.linspace(0, 6.28, 32)
begin, cpu = time.perf_counter(), time.process_time()
for epoch in range(5):
    for number in range(100):
        losses = pair.optimize(torch.sin(phases + 6.28 * torch.rand(64, 1)))
        display.show(epoch + number / 100, losses)
    print(f"epoch {epoch}: {losses['G_near']:.3f}")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
