"""Embeds a whole chunk: gathers one row of the table per token."""

from __future__ import annotations

from numpy import uint32

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import indices, matrix, number
from reference_trainer.kernels.on_cuda import gpu, on_cuda, threads_for


def host(command):
    """Compute x (T, D) = table[ids]. Arguments: x, table (V, D), ids (T,), T, D, V."""
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


def cuda(device, x, table, ids, tokens, width, vocabulary):
    device.start(embed_rows, tokens, threads_for(width), x, table, ids, width)


KERNEL = Kernel("embed", host=host, cuda=cuda)
