"""Cross-entropy of a tile of tokens, forward and backward in one: logits in, their gradient out, in the same memory."""

from __future__ import annotations

import math

import numpy as np
from numpy import uint32

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import indices, matrix, number, vector
from reference_trainer.kernels.elementwise import exp, exponential
from reference_trainer.kernels.on_cuda import device_function, gpu, on_cuda, place_in_columns, threads_for
from reference_trainer.kernels.reductions import add_to, block_argmax, block_sum, maxnum

_STRIP = 64  # rows that a CUDA thread adds up of a column: 3,000 tokens are 47 strips, enough for all multiprocessors

_ZERO, _ONE = np.float32(0), np.float32(1)


def host(command):
    """Compute losses, predictions and the gradient of the mean loss for tokens [begin, begin + rows) of a chunk of T.

    With z = logits + bias and p = softmax(z), for a token whose successor is n: losses = -log p[n], predictions =
    argmax z (the first of equal ones), logits <- (p - onehot(n)) / T. dbias = the sum of these over the tokens of this
    tile and those before it: the tile at begin = 0 overwrites, the others add.

    Three passes over a row, which stays in the first-level cache: the maximum; exp, its sum and where the maximum is;
    the gradient.

    Arguments: logits (rows, V), bias (V,), dbias (V,), losses (T,), predictions (T,), ids (T + 1,), begin, rows, T, V.
    """
    begin, rows, tokens, vocabulary = number(command, 6), number(command, 7), number(command, 8), number(command, 9)
    logits = matrix(command, 0, rows, vocabulary)
    bias = vector(command, 1, vocabulary)
    dbias = vector(command, 2, vocabulary)
    losses = vector(command, 3, tokens)
    predictions = indices(command, 4, tokens)
    ids = indices(command, 5, tokens + 1)
    length = np.int32(vocabulary)
    each = _ONE / np.float32(tokens)
    if begin == 0:
        for v in range(length):
            dbias[v] = _ZERO
    for r in range(rows):
        row = logits[r]
        best = row[0] + bias[0]
        for v in range(length):
            best = maxnum(best, row[v] + bias[v])
        following = ids[begin + r + 1]
        behind = best - (row[following] + bias[following])
        total = _ZERO
        first = length
        for v in range(length):
            below = row[v] + bias[v] - best
            first = min(first, np.int32(v) if below == _ZERO else length)
            term = exponential(below)
            row[v] = term
            total = add_to(total, term)
        losses[begin + r] = math.log(total) + behind
        predictions[begin + r] = first
        row[following] -= total
        share = each / total
        for v in range(length):
            gradient = row[v] * share
            row[v] = gradient
            dbias[v] += gradient


power = device_function(exp)


@on_cuda("void(float32[:, ::1], float32[::1], float32[::1], int32[::1], int32[::1], int64, int64, int64)")
def differentiate_rows(logits, bias, losses, predictions, ids, begin, tokens, vocabulary):
    """Process a token per block: its logits are read from memory once, and twice from the cache; exp is computed twice.

    Storing the exponentials would cost a write and a read of the row.
    """
    r = uint32(gpu.blockIdx.x)
    row = logits[r]
    thread, threads, end = uint32(gpu.threadIdx.x), uint32(gpu.blockDim.x), uint32(vocabulary)
    first = block_argmax(row, bias, vocabulary)
    best = row[first] + bias[first]
    partial = np.float32(0)
    v = thread
    while v < end:
        partial += power(row[v] + bias[v] - best)
        v = uint32(v + threads)
    total = block_sum(partial)
    following = uint32(ids[begin + r + 1])
    if thread == 0:
        losses[begin + r] = math.log(total) + (best - (row[following] + bias[following]))
        predictions[begin + r] = first
    gpu.syncthreads()  # the loss is read from what comes next
    share = np.float32(1) / (total * np.float32(tokens))
    v = thread
    while v < end:
        term = power(row[v] + bias[v] - best)
        if v == following:
            term -= total
        row[v] = term * share
        v = uint32(v + threads)


@on_cuda("void(float32[::1], float32[:, ::1], int64, int64)")
def add_strips(parts, gradients, rows, vocabulary):
    """Sum the columns over each strip of rows; neighbouring threads read neighbouring columns."""
    strip, v = place_in_columns(vocabulary)
    if v >= vocabulary:
        return
    total = np.float32(0)
    r = uint32(strip * _STRIP)
    end = uint32(min(uint32(r + _STRIP), uint32(rows)))
    while r < end:
        total += gradients[r, v]
        r = uint32(r + 1)
    parts[uint32(strip * vocabulary + v)] = total


@on_cuda("void(float32[::1], float32[::1], int64, int64, int64)")
def add_to_dbias(dbias, parts, strips, vocabulary, begin):
    """Sum dbias over all strips in order, and add that of earlier tiles."""
    v = uint32(gpu.grid(1))
    if v < vocabulary:
        total = np.float32(0)
        at, end = v, uint32(strips * vocabulary)
        while at < end:
            total += parts[at]
            at = uint32(at + vocabulary)
        dbias[v] = total + dbias[v] if begin > 0 else total


def cuda(device, logits, bias, dbias, losses, predictions, ids, begin, rows, tokens, vocabulary):
    """Launch three kernels. dbias is summed in a fixed order, by strips of rows.

    Atomics would give other bits each time, and a resumed run must give the same ones.
    """
    threads = threads_for(vocabulary)
    arguments = logits, bias, losses, predictions, ids, begin, tokens, vocabulary
    device.start(differentiate_rows, rows, threads, *arguments)
    strips, groups = -(-rows // _STRIP), -(-vocabulary // threads)
    parts = device.scratch(strips * vocabulary)
    device.start(add_strips, strips * groups, threads, parts, logits, rows, vocabulary)
    device.start(add_to_dbias, groups, threads, dbias, parts, strips, vocabulary, begin)


KERNEL = Kernel("cross-entropy", host=host, cuda=cuda, fastmath={"contract"})
