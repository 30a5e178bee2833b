"""Embeds a whole chunk, and computes the gradient of the embedding table."""

from __future__ import annotations

import numpy as np
from numpy import uint32

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import indices, matrix, number
from reference_trainer.kernels.on_cuda import gpu, on_cuda, place_in_columns, threads_for
from reference_trainer.kernels.reductions import block_sum

_TILE = 16  # rows whose loads are in flight together
_THREADS = 128

_ZERO = np.float32(0)


def embed_host(command):
    """Gather one row of the table per token: x (T, D) = table[ids]. Arguments: x, table (V, D), ids (T,), T, D, V."""
    tokens, width = number(command, 3), number(command, 4)
    x = matrix(command, 0, tokens, width)
    table = matrix(command, 1, number(command, 5), width)
    ids = indices(command, 2, tokens)
    for t in range(tokens):
        row = ids[t]
        for j in range(width):
            x[t, j] = table[row, j]


@on_cuda("void(float32[:, ::1], float32[:, ::1], int32[::1], int64)")
def embed_rows(x, table, ids, width):
    """Copy the row of one token per block."""
    t = uint32(gpu.blockIdx.x)
    row = uint32(ids[t])
    j, threads, end = uint32(gpu.threadIdx.x), uint32(gpu.blockDim.x), uint32(width)
    while j < end:
        x[t, j] = table[row, j]
        j = uint32(j + threads)


def embed_cuda(device, x, table, ids, tokens, width, vocabulary):
    device.start(embed_rows, tokens, threads_for(width), x, table, ids, width)


EMBED = Kernel("embed", host=embed_host, cuda=embed_cuda)


def backward_host(command):
    """Compute dtable (V, D): for each token v the sum of grad[t] over ids[t] = v, in the order of time.

    Arguments: dtable, grad (T, D), ids (T,), T, D, V.
    """
    tokens, width, vocabulary = number(command, 3), number(command, 4), number(command, 5)
    dtable = matrix(command, 0, vocabulary, width)
    grad = matrix(command, 1, tokens, width)
    ids = indices(command, 2, tokens)
    for v in range(vocabulary):
        for j in range(width):
            dtable[v, j] = _ZERO
    for t in range(tokens):
        row = dtable[ids[t]]
        for j in range(width):
            row[j] += grad[t, j]


@on_cuda("void(int32[::1], float32[:, ::1], int32[::1], int64, int64, int64)")
def sort_by_token(order, dtable, ids, tokens, width, vocabulary):
    """Set order[p] = the t that is p-th by (ids[t], t), order[T + p] = how many of that token follow from p on.

    A block per t counts those before it, which is exact in fp32 up to 2^24; T^2 comparisons in all, 9 million for 3,000
    tokens. It also sets its share of dtable to 0.
    """
    t, thread, threads = uint32(gpu.blockIdx.x), uint32(gpu.threadIdx.x), uint32(gpu.blockDim.x)
    token_id = ids[t]
    before = np.float32(0)
    count = np.float32(0)
    s = thread
    while s < tokens:
        previous = ids[s]
        if previous < token_id or (previous == token_id and s < t):
            before += np.float32(1)
        if previous == token_id and s >= t:
            count += np.float32(1)
        s = uint32(s + threads)
    row = uint32(block_sum(before))
    count = block_sum(count)
    if thread == 0:
        order[row] = t
        order[uint32(tokens + row)] = np.int32(count)
    v, blocks, columns = t, uint32(gpu.gridDim.x), uint32(width)
    while v < vocabulary:
        j = thread
        while j < columns:
            dtable[v, j] = np.float32(0)
            j = uint32(j + threads)
        v = uint32(v + blocks)


@on_cuda("void(float32[:, ::1], float32[:, ::1], int32[::1], int32[::1], int64, int64)")
def add_rows(dtable, grad, ids, order, tokens, width):
    """Sum a token's rows in order of time by the threads of its first occurrence, one thread per channel."""
    row, j = place_in_columns(width)
    token = uint32(ids[uint32(order[row])])
    if j >= width or (row > 0 and ids[uint32(order[uint32(row - 1)])] == token):
        return
    rows = gpu.local.array(_TILE, np.float32)
    total = np.float32(0)
    end = uint32(row + order[uint32(tokens + row)])
    while uint32(row + _TILE) <= end:
        tile = order[row:]
        for i in range(_TILE):
            rows[i] = grad[uint32(tile[i]), j]
        gpu.threadfence_block()  # ptxas would move each load down to its sum
        for i in range(_TILE):
            total += rows[i]
        row = uint32(row + _TILE)
    while row < end:
        total += grad[uint32(order[row]), j]
        row = uint32(row + 1)
    dtable[token, j] = total


def backward_cuda(device, dtable, grad, ids, tokens, width, vocabulary):
    """Launch two kernels: one sorts the tokens, one sums each row of dtable with one thread per channel.

    Atomics would also need two (zeros, then T x D additions), but would add in another order each time and give other
    last bits, while a resumed run must give the same ones. These are the bits of the host device.
    """
    order = device.scratch(2 * tokens, "int32")
    device.start(sort_by_token, tokens, threads_for(tokens, _THREADS), order, dtable, ids, tokens, width, vocabulary)
    threads = threads_for(width, _THREADS)
    grid = tokens * -(-width // threads)
    device.start(add_rows, grid, threads, dtable, grad, ids, order, tokens, width)


BACKWARD = Kernel("embed backward", host=backward_host, cuda=backward_cuda)
