"""Statistics of every parameter are formatted and logged in each step. Expected: logging or Python, in log_step().

The truth is the thread's CPU time in log_step(); CURED=1 logs every 50th step.
"""

import logging
import os

import torch
from truth import Truth

torch.manual_seed(0)
log = logging.getLogger(__name__)
logging.basicConfig(filename=os.devnull, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(256, 256), torch.randn(256, 256)


def log_step(step: int, errors: list[float]) -> None:
    for number, error in enumerate(errors):
        log.info("step %d sample %d loss %.6f", step, number, error)


def train(steps: int) -> None:
    every = 50 if os.environ.get("CURED") else 1
    truth = Truth()
    logs = truth.part("log")
    for step in range(steps):
        errors = ((model(x) - y) ** 2).mean(1)
        optimizer.zero_grad()
        errors.mean().backward()
        optimizer.step()
        if step % every == 0:
            with logs:
                log_step(step, errors.tolist())
    truth.end(steps)


train(400)
