"""Try cell configurations one after the other, each with a log of its own."""

import itertools
import logging
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

CURED = "--cured" in sys.argv
FORMAT = logging.Formatter("[%(asctime)s %(name)s %(levelname)s] %(message)s", "%m/%d %H:%M:%S")


def setup_logger(path):
    logger = logging.getLogger("search")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    if CURED:
        for old in list(logger.handlers):
            logger.removeHandler(old)
            old.close()
    for handler in (logging.FileHandler(path, mode="w"), logging.StreamHandler(sys.stderr)):
        handler.setFormatter(FORMAT)
        logger.addHandler(handler)
    return logger


def cell_of(act, width, depth):
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), act())]
    return nn.Sequential(nn.Linear(20, width), *layers, nn.Linear(width, 5))


def fit(cell, logger, steps):
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        x = torch.randn(64, 20)
        loss = nn.functional.cross_entropy(cell(x), x[:, :5].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(cell.parameters(), 5.0)
        optimizer.step()
        logger.debug("step %03d: gradient norm %.4f", step, norm)
        logger.info("step %03d: loss %.4f", step, loss)
    return loss.item()


torch.manual_seed(0)
folder = Path(tempfile.mkdtemp(prefix="trials-"))
space = itertools.product((nn.ReLU, nn.GELU, nn.Tanh, nn.SiLU), (32, 48, 64, 96), (1, 2, 3, 4))
best = float("inf")
begin, cpu = time.perf_counter(), time.process_time()
for number, (act, width, depth) in enumerate(space):
    logger = setup_logger(folder / f"{number}.log")
    logger.info("trial %d: %s, width %d, depth %d", number, act.__name__, width, depth)
    best = min(best, fit(cell_of(act, width, depth), logger, 15))
print(f"best loss {best:.4f}")
print(f"trained in {time.perf_counter() - begin:.3f} s, {time.process_time() - cpu:.3f} s of CPU")
