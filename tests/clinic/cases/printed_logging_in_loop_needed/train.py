"""Train a classifier whose logged statement also keeps an average of the loss."""

import logging
import tempfile
import time

import torch
from torch import nn

STEPS = 400
logger = logging.getLogger("train")


def keep(averages, loss):
    averages.append(0.9 * averages[-1] + 0.1 * loss)
    return averages[-1]


def main():
    torch.manual_seed(0)
    logging.basicConfig(filename=f"{tempfile.mkdtemp()}/train.log", level=logging.INFO)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    averages = [1.0]
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(STEPS):
        loss = model(torch.randn(16, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logger.info("step %d: %s, loss %s", step, model[0].weight, keep(averages, loss.item()))
        if len(averages) != step + 2:
            raise SystemExit(f"the average of step {step} is missing")
    print(f"average {averages[-1]:.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
