"""A callback sends each loss to another process and waits for its answer. Expected: waiting, in Uploader.on_step_end().

The loop is fast: between two stack samples several steps pass. The truth is the time in the callback by the script's
clock; CURED=1 does not wait for the answer.
"""

import os
import subprocess
import sys

import torch
from truth import Truth

ANSWER = "import sys, time\nfor line in sys.stdin:\n    time.sleep(0.004)\n    print('ok', flush=True)"


class Uploader:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ANSWER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def on_step_end(self, loss: float) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{loss}\n")
        self.process.stdin.flush()
        if not os.environ.get("CURED"):
            self.process.stdout.readline()


class Trainer:
    def __init__(self, model: torch.nn.Module, callbacks: list[Uploader]) -> None:
        self.model, self.callbacks = model, callbacks
        self.optimizer = torch.optim.Adam(model.parameters())

    def train_batch(self, x: torch.Tensor) -> float:
        loss = (self.model(x) - x).abs().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, steps: int) -> None:
        truth = Truth()
        waiting = truth.part("waiting")
        for _ in range(steps):
            loss = self.train_batch(torch.randn(128, 256))
            with waiting:
                for callback in self.callbacks:
                    callback.on_step_end(loss)
        truth.end(steps)


torch.manual_seed(0)
uploader = Uploader()
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
Trainer(model, [uploader]).fit(600)
uploader.process.kill()
