"""Ends a chunk of learning: computes what the host reads of it."""

from __future__ import annotations

import numpy as np
from numpy import uint32

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.adamw import LAST_RATE, NORM
from reference_trainer.kernels.arguments import indices, number, vector
from reference_trainer.kernels.on_cuda import device_helper, gpu, on_cuda, threads_for
from reference_trainer.kernels.reductions import add_to, block_sum

_ZERO = np.float32(0)


def host(command):
    """Compute results (4,) = mean loss, accuracy, learning rate and norm of the gradient before it was clipped.

    Arguments: results, losses (T,), predictions (T,), ids (T + 1,), step_state (12,) of `adamw`, T.
    """
    tokens = number(command, 5)
    results = vector(command, 0, 4)
    losses = vector(command, 1, tokens)
    predictions = indices(command, 2, tokens)
    ids = indices(command, 3, tokens + 1)
    state = vector(command, 4, 12)
    total = _ZERO
    right = 0
    for t in range(tokens):
        total = add_to(total, losses[t])
        right += predictions[t] == ids[t + 1]
    results[0] = total / np.float32(tokens)
    results[1] = (_ZERO + np.float32(right)) / np.float32(tokens)
    results[2] = state[LAST_RATE]
    results[3] = state[NORM]


total_of = device_helper(block_sum)


@on_cuda("void(float32[::1], float32[::1], int32[::1], int32[::1], float32[::1], int64)")
def close_learned(results, losses, predictions, ids, state, tokens):
    """Do it by one block."""
    loss = np.float32(0)
    right = np.float32(0)
    t, threads = uint32(gpu.threadIdx.x), uint32(gpu.blockDim.x)
    while t < tokens:
        loss += losses[t]
        if predictions[t] == ids[uint32(t + 1)]:
            right += np.float32(1)
        t = uint32(t + threads)
    losses_sum = total_of(loss)
    right_sum = total_of(right)
    if gpu.threadIdx.x == 0:
        results[0] = losses_sum / np.float32(tokens)
        results[1] = right_sum / np.float32(tokens)
        results[2] = state[LAST_RATE]
        results[3] = state[NORM]


def cuda(device, results, losses, predictions, ids, step_state, tokens):
    arguments = results, losses, predictions, ids, step_state, tokens
    device.start(close_learned, 1, threads_for(tokens), *arguments)


KERNEL = Kernel("learned", host=host, cuda=cuda)
