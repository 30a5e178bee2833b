"""Train a potential with clipped gradients, and save it now and then."""

import argparse
import io

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_


class Guard:
    """Remembers on the device whether a gradient was not finite."""

    def __init__(self, device):
        self.bad = torch.zeros((), dtype=torch.bool, device=device)

    def update(self, norm):
        self.bad |= ~norm.isfinite()

    def check(self):
        if self.bad:
            raise RuntimeError("a gradient was not finite")


class Trainer:
    def __init__(self, defers):
        self.net = nn.Sequential(nn.Linear(9, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1)).to("cuda")
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.98)
        self.guard = Guard("cuda") if defers else None

    def step(self, places):
        energy = self.net(places).squeeze(-1)
        loss = (energy - places.square().sum(-1)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        norm = clip_grad_norm_(self.net.parameters(), 5.0, error_if_nonfinite=self.guard is None)
        if self.guard is not None:
            self.guard.update(norm)
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()

    def save(self, number):
        if self.guard is not None:
            self.guard.check()
        file = io.BytesIO()
        torch.save({"step": number, "net": self.net.state_dict()}, file)
        return file.tell()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--defer", action="store_true")
    torch.manual_seed(0)
    trainer = Trainer(parser.parse_args().defer)
    for number in range(1, 29):
        loss = trainer.step(torch.randn(32, 9, device="cuda"))
        if number % 14 == 0:
            print(f"step {number}: loss {loss.item():.4f}, {trainer.save(number)} bytes")
