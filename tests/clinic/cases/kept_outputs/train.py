"""Distil a small classifier from a wider one, in one long epoch."""

import sys
import time

import torch
from glowloop import Trainer
from torch import nn


class Transfer(nn.Module):
    def __init__(self, is_quiet):
        super().__init__()
        self.is_quiet = is_quiet
        self.teacher = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 10)).requires_grad_(False)
        self.student = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))

    def configure_optimizer(self):
        return torch.optim.AdamW(self.student.parameters(), lr=1e-3)

    def training_step(self, batch, number):
        guess = self.student(batch)
        with torch.no_grad():
            aim = self.teacher(batch)
        loss = nn.functional.kl_div(guess.log_softmax(-1), aim.softmax(-1), reduction="batchmean")
        if self.is_quiet:
            return {"loss": loss}
        agreement = (guess.argmax(-1) == aim.argmax(-1)).float().mean()
        distance = (guess - aim).square().mean()
        bar = {"train_loss": loss, "agreement": agreement}
        return {"loss": loss, "progress_bar": bar, "log": {"train_loss": loss, "distance": distance}}

    def training_epoch_end(self, outputs):
        print(f"\nmean loss {torch.stack([output['loss'] for output in outputs]).mean():.4f}")


def batches(steps):
    for _ in range(steps):
        yield torch.randn(64, 64)


torch.manual_seed(0)
model = Transfer("--cured" in sys.argv)
begin, cpu = time.perf_counter(), time.process_time()
Trainer().fit(model, batches(700))
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
