"""Computes the predictions of a chunk from its logits, for a host that compares them itself."""

from __future__ import annotations

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import indices, matrix, number, vector
from reference_trainer.kernels.on_cuda import device_helper, gpu, on_cuda, threads_for
from reference_trainer.kernels.reductions import argmax_of_sum, block_argmax


def host(command):
    """Compute predictions (T,) = argmax(logits + bias), the first of equal ones.

    Arguments: predictions, logits (T, V), bias (V,), T, V.
    """
    tokens, vocabulary = number(command, 3), number(command, 4)
    predictions = indices(command, 0, tokens)
    logits = matrix(command, 1, tokens, vocabulary)
    bias = vector(command, 2, vocabulary)
    for t in range(tokens):
        predictions[t] = argmax_of_sum(logits[t], bias)


argmax = device_helper(block_argmax)


@on_cuda("void(int32[::1], float32[:, ::1], float32[::1], int64)")
def predict_rows(predictions, logits, bias, vocabulary):
    """Do one token per block."""
    t = gpu.blockIdx.x
    first = argmax(logits[t], bias, vocabulary)
    if gpu.threadIdx.x == 0:
        predictions[t] = first


def cuda(device, predictions, logits, bias, tokens, vocabulary):
    device.start(predict_rows, tokens, threads_for(vocabulary), predictions, logits, bias, vocabulary)


KERNEL = Kernel("predict", host=host, cuda=cuda, fastmath={"nnan", "nsz"})
