"""Computes logits and argmax of one token: the decoder of the token-by-token loop."""

from __future__ import annotations

import numpy as np
from numpy import uint32

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import indices, matrix, number, vector
from reference_trainer.kernels.on_cuda import ONE_BLOCK_ELEMENTS, gpu, on_cuda, threads_for
from reference_trainer.kernels.reductions import argmax_of_sum, block_argmax


def host(command):
    """Compute one of predictions (_,) = argmax(one row of readouts (_, D) @ weight + bias), the first of equal ones.

    Arguments: predictions, readouts, weight (D, V), bias (V,), logits (V,) as scratch, D, V, which prediction, which
    row of readouts.
    """
    width, vocabulary, row, readout_row = number(command, 5), number(command, 6), number(command, 7), number(command, 8)
    predictions = indices(command, 0, row + 1)
    readout = matrix(command, 1, readout_row + 1, width)[readout_row]
    weight = matrix(command, 2, width, vocabulary)
    bias = vector(command, 3, vocabulary)
    logits = vector(command, 4, vocabulary)
    for v in range(vocabulary):
        logits[v] = np.float32(0)
    for k in range(width):
        rk = readout[k]
        for v in range(vocabulary):
            logits[v] += rk * weight[k, v]
    predictions[row] = argmax_of_sum(logits, bias)


@on_cuda("void(int32[::1], float32[:, ::1], float32[:, ::1], float32[::1], float32[::1], int64, int64, int64, int64)")
def decode_in_one_block(predictions, readouts, weight, bias, logits, width, vocabulary, row, readout_row):
    """Compute product and argmax by one block; neighbouring threads read neighbouring columns of the weight."""
    readout = readouts[readout_row]
    v, threads, rows = uint32(gpu.threadIdx.x), uint32(gpu.blockDim.x), uint32(width)
    while v < vocabulary:
        total = np.float32(0)
        k = uint32(0)
        while k < rows:
            total += readout[k] * weight[k, v]
            k = uint32(k + 1)
        logits[v] = total
        v = uint32(v + threads)
    gpu.syncthreads()
    first = block_argmax(logits, bias, vocabulary)
    if gpu.threadIdx.x == 0:
        predictions[row] = first


@on_cuda("void(int32[::1], float32[::1], float32[::1], int64, int64)")
def choose(predictions, logits, bias, vocabulary, row):
    """Compute only the argmax, by one block."""
    first = block_argmax(logits, bias, vocabulary)
    if gpu.threadIdx.x == 0:
        predictions[row] = first


def cuda(device, predictions, readouts, weight, bias, logits, width, vocabulary, row, readout_row):
    threads = threads_for(vocabulary)
    if width * vocabulary <= ONE_BLOCK_ELEMENTS:
        arguments = (predictions, readouts, weight, bias, logits, width, vocabulary, row, readout_row)
        device.start(decode_in_one_block, 1, threads, *arguments)
    else:
        device.vector_matrix(logits.tensor, readouts.tensor[readout_row], weight)
        device.start(choose, 1, threads, predictions, logits, bias, vocabulary, row)


KERNEL = Kernel("decode", host=host, cuda=cuda, fastmath={"contract", "nnan", "nsz"})
