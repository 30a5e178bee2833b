"""Train a small classifier and log the state of each layer in each step."""

import logging
import tempfile
import time

import torch
from torch import nn

STEPS = 250
logger = logging.getLogger("train")


def main():
    torch.manual_seed(0)
    logging.basicConfig(filename=f"{tempfile.mkdtemp()}/train.log", level=logging.INFO)
    layers = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin, cpu = time.perf_counter(), time.process_time()
    for step in range(STEPS):
        loss = model(torch.randn(16, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for name, weight in model.named_parameters():
            logger.info("step %d %s %s", step, name, weight.grad)
    print(f"loss {loss.item():.4f}")
    print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")


if __name__ == "__main__":
    main()
