"""Each step appends its activations to a file and waits until the disk has them. Expected: waiting, in append().

The truth is the time in append() by the script's clock; CURED=1 leaves the writing to the kernel.
"""

import os
import tempfile
from typing import BinaryIO

import torch
from truth import Truth

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(128, 512), torch.randn(128, 512)


def append(file: BinaryIO, values: torch.Tensor) -> None:
    file.seek(0)
    file.write(values.numpy().tobytes())
    if not os.environ.get("CURED"):
        file.flush()
        os.fsync(file.fileno())


def train(steps: int, file: BinaryIO) -> None:
    truth = Truth()
    writing = truth.part("waiting")
    for _ in range(steps):
        output = model(x)
        loss = torch.nn.functional.mse_loss(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with writing:
            append(file, output.detach())
    truth.end(steps)


with tempfile.TemporaryFile(dir=".") as file:
    train(400, file)
