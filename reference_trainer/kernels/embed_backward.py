"""Computes the gradient of the embedding table: the sum of a chunk's gradient rows by token."""

from __future__ import annotations

import numpy as np

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import indices, matrix, number
from reference_trainer.kernels.on_cuda import device_helper, gpu, on_cuda, threads_for
from reference_trainer.kernels.reductions import block_sum

_TILE = 16  # rows whose loads are in flight together
_THREADS = 128

_ZERO = np.float32(0)


def host(command):
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


total_of = device_helper(block_sum)


@on_cuda("void(int32[::1], float32[:, ::1], int32[::1], int64, int64, int64)")
def sort_by_token(order, dtable, ids, tokens, width, vocabulary):
    """Set order[p] = the t that is p-th by (ids[t], t), order[T + p] = how many of that token follow from p on.

    A block per t counts those before it, which is exact in fp32 up to 2^24; T^2 comparisons in all, 9 million for 3,000
    tokens. It also sets its share of dtable to 0.
    """
    t = gpu.blockIdx.x
    token_id = ids[t]
    before = np.float32(0)
    count = np.float32(0)
    for s in range(gpu.threadIdx.x, tokens, gpu.blockDim.x):
        previous = ids[s]
        if previous < token_id or (previous == token_id and s < t):
            before += np.float32(1)
        if previous == token_id and s >= t:
            count += np.float32(1)
    row = total_of(before)
    count = total_of(count)
    if gpu.threadIdx.x == 0:
        order[np.int64(row)] = t
        order[tokens + np.int64(row)] = np.int32(count)
    for v in range(t, vocabulary, gpu.gridDim.x):
        for j in range(gpu.threadIdx.x, width, gpu.blockDim.x):
            dtable[v, j] = np.float32(0)


@on_cuda("void(float32[:, ::1], float32[:, ::1], int32[::1], int32[::1], int64, int64)")
def add_rows(dtable, grad, ids, order, tokens, width):
    """Sum a token's rows in order of time by the threads of its first occurrence, one thread per channel."""
    groups = (width + gpu.blockDim.x - 1) // gpu.blockDim.x
    row = gpu.blockIdx.x // groups
    j = (gpu.blockIdx.x - row * groups) * gpu.blockDim.x + gpu.threadIdx.x
    token = ids[order[row]]
    if j >= width or (row > 0 and ids[order[row - 1]] == token):
        return
    rows = gpu.local.array(_TILE, np.float32)
    total = np.float32(0)
    end = row + order[tokens + row]
    while row + _TILE <= end:
        for i in range(_TILE):
            rows[i] = grad[order[row + i], j]
        for i in range(_TILE):
            total += rows[i]
        row += _TILE
    for p in range(row, end):
        total += grad[order[p], j]
    dtable[token, j] = total


def cuda(device, dtable, grad, ids, tokens, width, vocabulary):
    """Launch two kernels: one sorts the tokens, one sums each row of dtable with one thread per channel.

    Atomics would also need two (zeros, then T x D additions), but would add in another order each time and give other
    last bits, while a resumed run must give the same ones. These are the bits of the host device.
    """
    order = device.scratch(2 * tokens, "int32")
    device.start(sort_by_token, tokens, threads_for(tokens, _THREADS), order, dtable, ids, tokens, width, vocabulary)
    threads = threads_for(width, _THREADS)
    grid = tokens * -(-width // threads)
    device.start(add_rows, grid, threads, dtable, grad, ids, order, tokens, width)


KERNEL = Kernel("embed backward", host=host, cuda=cuda)
