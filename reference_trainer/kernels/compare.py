"""Computes the reward of one token on the device, so that the host does not need the prediction."""

from __future__ import annotations

import numpy as np

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import indices, number, vector
from reference_trainer.kernels.on_cuda import on_cuda


def host(command):
    """Compute correct (1,) += predictions[row] == ids[t + 1].

    Arguments: correct, predictions (_,), ids (_,), row, t.
    """
    row, t = number(command, 3), number(command, 4)
    correct = vector(command, 0, 1)
    correct[0] += indices(command, 1, row + 1)[row] == indices(command, 2, t + 2)[t + 1]


@on_cuda("void(float32[::1], int32[::1], int32[::1], int64, int64)")
def compare_one(correct, predictions, ids, row, t):
    """Do it by one thread."""
    if predictions[row] == ids[t + 1]:
        correct[0] += np.float32(1)


def cuda(device, correct, predictions, ids, row, t):
    device.start(compare_one, 1, 1, correct, predictions, ids, row, t)


KERNEL = Kernel("compare", host=host, cuda=cuda)
