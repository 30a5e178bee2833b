"""Computes predictions and the number of correct ones on the device."""

from __future__ import annotations

import numpy as np

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import indices, matrix, number, vector
from reference_trainer.kernels.on_cuda import device_helper, gpu, on_cuda, threads_for
from reference_trainer.kernels.reductions import argmax_of_sum, block_argmax


def host(command):
    """Compute predictions (T,) = argmax(logits + bias), and add the number that equal ids[t + 1] to correct (1,).

    Arguments: predictions, correct, logits (T, V), bias (V,), ids (T + 1,), T, V. The first of equal logits wins.
    """
    tokens, vocabulary = number(command, 5), number(command, 6)
    predictions = indices(command, 0, tokens)
    correct = vector(command, 1, 1)
    logits = matrix(command, 2, tokens, vocabulary)
    bias = vector(command, 3, vocabulary)
    ids = indices(command, 4, tokens + 1)
    right = 0
    for t in range(tokens):
        first = argmax_of_sum(logits[t], bias)
        predictions[t] = first
        right += ids[t + 1] == first
    correct[0] += right


argmax = device_helper(block_argmax)


@on_cuda("void(int32[::1], float32[::1], float32[:, ::1], float32[::1], int32[::1], int64)")
def score_rows(predictions, correct, logits, bias, ids, vocabulary):
    """Do one token per block. Adding ones in fp32 is exact in any order, up to 2^24 of them."""
    t = gpu.blockIdx.x
    first = argmax(logits[t], bias, vocabulary)
    if gpu.threadIdx.x == 0:
        predictions[t] = first
        if ids[t + 1] == first:
            gpu.atomic.add(correct, 0, np.float32(1))


def cuda(device, predictions, correct, logits, bias, ids, tokens, vocabulary):
    threads = threads_for(vocabulary)
    device.start(score_rows, tokens, threads, predictions, correct, logits, bias, ids, vocabulary)


KERNEL = Kernel("score", host=host, cuda=cuda, fastmath={"nnan", "nsz"})
