"""Tune a small language model on two ranks with Accelerate, and follow entropy and accuracy of its tokens."""

import sys
import time
from collections import defaultdict

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader

LATE = "--cured" in sys.argv


class Tuner:
    """A supervised tuner that logs the means of some metrics."""

    def __init__(self, model, rows, log_every=20):
        self.accelerator = Accelerator(cpu=True)
        parts = model, torch.optim.AdamW(model.parameters(), lr=1e-3), DataLoader(rows, batch_size=4, shuffle=True)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(*parts)
        self.log_every, self.metrics = log_every, defaultdict(list)

    def keep(self, **values):
        for name, value in values.items():
            self.metrics[name].append(value if LATE else self.gather(value).mean().item())

    def gather(self, value):
        return self.accelerator.gather_for_metrics(value)

    def compute_loss(self, ids):
        logits, targets = self.model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()
        loss = nn.functional.cross_entropy(logits, targets)
        entropy = torch.distributions.Categorical(logits=logits.detach(), validate_args=False).entropy().mean()
        right = (logits.argmax(-1) == targets).float()
        self.keep(entropy=entropy, accuracy=right.mean(), tokens=right.new_tensor(len(right)), loss=loss.detach())
        return loss

    def train(self):
        for step, ids in enumerate(self.loader, 1):
            self.optimizer.zero_grad()
            self.accelerator.backward(self.compute_loss(ids))
            self.optimizer.step()
            if step % self.log_every == 0:
                self.log(step)

    def log(self, step):
        if LATE:
            self.metrics = {name: self.gather(torch.stack(kept)).tolist() for name, kept in self.metrics.items()}
        self.accelerator.print(step, {name: sum(kept) / len(kept) for name, kept in self.metrics.items()})
        self.metrics = defaultdict(list)


set_seed(1)
rows = torch.randint(0, 50, (3200, 1)).add(torch.arange(12) * 3) % 50
tuner = Tuner(nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 50)), rows)
begin, cpu = time.perf_counter(), time.process_time()
tuner.train()
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
tuner.accelerator.end_training()
