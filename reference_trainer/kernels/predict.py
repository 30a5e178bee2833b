"""Predictions of a chunk out of its logits, for a host that compares them by itself."""

from __future__ import annotations

from typing import Any

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.argmax import argmax_of_sum, block_argmax
from reference_trainer.kernels.arguments import indices, matrix, number, vector
from reference_trainer.kernels.on_cuda import on_cuda, threads_for

gpu: Any = None  # numba.cuda, put here by on_cuda
argmax: Any = None  # likewise


def host(command):
    """predictions (T,) = argmax(logits + bias), the first of equal ones.

    Arguments: predictions, logits (T, V), bias (V,), T, V.
    """
    tokens, vocabulary = number(command, 3), number(command, 4)
    predictions = indices(command, 0, tokens)
    logits = matrix(command, 1, tokens, vocabulary)
    bias = vector(command, 2, vocabulary)
    for t in range(tokens):
        predictions[t] = argmax_of_sum(logits[t], bias)


@on_cuda("void(int32[::1], float32[:, ::1], float32[::1], int64)", argmax=block_argmax)
def predict_rows(predictions, logits, bias, vocabulary):
    """A block a token."""
    t = gpu.blockIdx.x
    first = argmax(logits[t], bias, vocabulary)
    if gpu.threadIdx.x == 0:
        predictions[t] = first


def cuda(device, predictions, logits, bias, tokens, vocabulary):
    device.start(predict_rows, tokens, threads_for(vocabulary), predictions, logits, bias, vocabulary)


KERNEL = Kernel("predict", host=host, cuda=cuda, fastmath={"nnan", "nsz"})
