"""Ends a chunk: computes its loss and accuracy, and the neuromodulator of the next chunk."""

from __future__ import annotations

import numpy as np

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import number, vector
from reference_trainer.kernels.on_cuda import on_cuda

DECAY = np.float32(0.9)  # m <- 0.9 m + 0.1 * mean reward, as in the original program
_GAIN = np.float32(0.1)


def host(command):
    """Compute results (3,) = 0/1 loss, accuracy, modulator; update modulator (1,) and set correct (1,) to 0.

    Arguments: results, correct (sum of rewards), modulator, T.
    """
    results, correct, modulator = vector(command, 0, 3), vector(command, 1, 1), vector(command, 2, 1)
    reward = correct[0] / np.float32(number(command, 3))
    modulator[0] = DECAY * modulator[0] + _GAIN * reward
    results[0] = np.float32(1) - reward
    results[1] = reward
    results[2] = modulator[0]
    correct[0] = np.float32(0)


@on_cuda("void(float32[::1], float32[::1], float32[::1], int64)")
def close_chunk(results, correct, modulator, tokens):
    """Do it by one thread."""
    reward = correct[0] / np.float32(tokens)
    moved = DECAY * modulator[0] + _GAIN * reward
    modulator[0] = moved
    results[0] = np.float32(1) - reward
    results[1] = reward
    results[2] = moved
    correct[0] = np.float32(0)


def cuda(device, results, correct, modulator, tokens):
    device.start(close_chunk, 1, 1, results, correct, modulator, tokens)


KERNEL = Kernel("modulate", host=host, cuda=cuda)
