"""Computes the norm of all gradients, by which they are clipped."""

from __future__ import annotations

import math

import numpy as np
from numpy import uint32

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import number, vector
from reference_trainer.kernels.on_cuda import gpu, on_cuda, threads_for
from reference_trainer.kernels.reductions import block_sum

_ZERO = np.float32(0)
_BLOCK = 1024  # squares summed in fp32 before the sum goes into one in fp64
_LANES = 4  # sums of a CUDA thread, so that loads of as many are in flight and each sum is of fewer
_MOST_BLOCKS = 1024  # 8 blocks on each of 132 multiprocessors are 1,056; a power of two for the second stage


def host(command):
    """Compute norm (1,) = sqrt(sum of grads^2). Arguments: norm, grads (P,), P."""
    size = number(command, 2)
    norm = vector(command, 0, 1)
    grads = vector(command, 1, size)
    total = 0.0
    for begin in range(0, size, _BLOCK):
        squares = _ZERO
        part = grads[begin : begin + _BLOCK]
        for i in range(len(part)):
            squares += part[i] * part[i]
        total += float(squares)
    norm[0] = math.sqrt(total)


@on_cuda("void(float32[::1], float32[::1], int64)")
def add_squares(parts, grads, size):
    """Sum the squares of each block's share of the gradients."""
    threads, end = uint32(gpu.gridsize(1)), uint32(size)
    sums = gpu.local.array(_LANES, np.float32)
    for vector_lane in range(_LANES):
        sums[vector_lane] = np.float32(0)
    i = uint32(gpu.grid(1))
    while uint32(i + (_LANES - 1) * threads) < end:
        for vector_lane in range(_LANES):
            value = grads[uint32(i + vector_lane * threads)]
            sums[vector_lane] += value * value
        i = uint32(i + _LANES * threads)
    while i < end:
        sums[0] += grads[i] * grads[i]
        i = uint32(i + threads)
    total = block_sum((sums[0] + sums[1]) + (sums[2] + sums[3]))
    if gpu.threadIdx.x == 0:
        parts[gpu.blockIdx.x] = total


@on_cuda("void(float32[::1], float32[::1], int64)")
def root_of_sum(norm, parts, blocks):
    """Compute the root of the sum of all parts by one block."""
    partial = np.float32(0)
    i, threads = uint32(gpu.threadIdx.x), uint32(gpu.blockDim.x)
    while i < blocks:
        partial += parts[i]
        i = uint32(i + threads)
    total = block_sum(partial)
    if gpu.threadIdx.x == 0:
        norm[0] = math.sqrt(total)


def cuda(device, norm, grads, size):
    """Sum in two stages in a fixed order, without atomics: the same gradients give the same bits, and so the same run.

    A sum in fp32 of n numbers is off by up to n/2 roundings; here by those of a thread's lane, 300 of 3e8 gradients,
    and 20 of the trees.
    """
    threads = threads_for(-(-size // _LANES))
    blocks = min(_MOST_BLOCKS, -(-size // (_LANES * threads)))
    parts = device.scratch(blocks)
    device.start(add_squares, blocks, threads, parts, grads, size)
    device.start(root_of_sum, 1, threads_for(blocks), norm, parts, blocks)


KERNEL = Kernel("gradient norm", host=host, cuda=cuda, fastmath={"contract", "reassoc"})
