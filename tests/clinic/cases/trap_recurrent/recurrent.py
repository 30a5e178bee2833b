"""A recurrent network whose torch.profiler stays on, whose checkpoints are flushed to the disk, or that looks for NaN.

`--ill` makes it ill, `--cured` has the same work without the illness; without either it is healthy: torch computes the
gradients of a recurrent layer by many small operators, and no change of the program makes them fewer.
"""

import argparse
import contextlib
import os
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

WORDS, WIDTH, BATCH, LENGTH = 4000, 96, 32, 40


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layer = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        states, _ = self.layer(self.embedding(words))
        return self.head(states[:, -1])


def save(model, optimizer, folder):
    """Replace the last checkpoint, which is on the disk when this returns."""
    file = folder / "new.pt"
    with file.open("wb") as stream:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, stream)  # ill: synchronous-checkpoint
        stream.flush()
        os.fsync(stream.fileno())  # ill: synchronous-checkpoint
    file.replace(folder / "last.pt")


def profiled(ill):
    """torch's profiler in short windows again and again, if this illness is on."""
    if "profiler-left-on" not in ill:
        return contextlib.nullcontext()
    return torch.profiler.profile(  # ill: profiler-left-on
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=8, warmup=1, active=1),
        on_trace_ready=lambda profile: profile.key_averages().table(row_limit=3),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--ill", action="append", default=[])
    parser.add_argument("--cured", action="append", default=[])
    arguments = parser.parse_args()
    ill, warm = set(arguments.ill), min(20, arguments.steps // 3)
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.autograd.set_detect_anomaly("debug-mode" in ill)  # ill: debug-mode
    with tempfile.TemporaryDirectory() as folder, profiled(ill) as profile:
        for step in range(arguments.steps):
            if step == warm:
                began, cpu = time.perf_counter(), time.process_time()
            words = torch.randint(WORDS, (BATCH, LENGTH))
            loss = nn.functional.cross_entropy(model(words), words[:, 0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if "synchronous-checkpoint" in ill and step % 6 == 5:
                save(model, optimizer, Path(folder))  # ill: synchronous-checkpoint
            if profile is not None:
                profile.step()  # ill: profiler-left-on
        print(f"trained in {time.perf_counter() - began:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
