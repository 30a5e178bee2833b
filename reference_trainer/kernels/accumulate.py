"""Sums the metrics of several chunks on the device until the host needs them."""

from __future__ import annotations

import numpy as np

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import number, vector
from reference_trainer.kernels.on_cuda import on_cuda


def host(command):
    """Add loss and accuracy, times the tokens, to totals (2,), which start from 0 where `first` is not 0.

    Arguments: totals, results (3,) of `modulate`, T, first.
    """
    totals, results = vector(command, 0, 2), vector(command, 1, 3)
    tokens, first = number(command, 2), number(command, 3)
    for i in range(2):
        before = np.float32(0) if first else totals[i]
        totals[i] = before + results[i] * np.float32(tokens)


@on_cuda("void(float32[::1], float32[::1], int64, int64)")
def add_up(totals, results, tokens, first):
    """Do it by one thread."""
    for i in range(2):
        before = np.float32(0) if first else totals[i]
        totals[i] = before + results[i] * np.float32(tokens)


def cuda(device, totals, results, tokens, first):
    device.start(add_up, 1, 1, totals, results, tokens, first)


KERNEL = Kernel("accumulate", host=host, cuda=cuda)
