"""Argmax over a row: on the host device in two loops that LLVM turns into vector code, on CUDA by a block.

On the host, Python's max() of two floats becomes a branch that LLVM does not recognise as a reduction; its own maxnum
is one: 0.05 against 0.40 us for a row of 256 (docs/log.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reference_trainer.jit import njit
from reference_trainer.kernels.on_cuda import SHARED_THREADS
from reference_trainer.kernels.reductions import maxnum

gpu: Any = None  # numba.cuda, put here by on_cuda


@njit(inline="always")
def argmax_of_sum(row, bias):
    """Index of the largest row[v] + bias[v]; the first of equal ones. (V,) both, no NaN."""
    length = np.int32(len(bias))
    best = row[0] + bias[0]
    for v in range(length):
        best = maxnum(best, row[v] + bias[v])
    first = length
    for v in range(length):
        first = min(first, np.int32(v) if row[v] + bias[v] == best else length)
    return first


def block_argmax(compiled):
    """The same for a block of CUDA threads, compiled by `compiled`; a power of two of them, at most SHARED_THREADS.

    All threads call argmax(row, bias, length), once a kernel, and all get the index.
    """

    @compiled
    def argmax(row, bias, length):
        sums = gpu.shared.array(SHARED_THREADS, np.float32)
        firsts = gpu.shared.array(SHARED_THREADS, np.int32)
        thread = gpu.threadIdx.x
        best = np.float32(-np.inf)
        first = np.int32(length)  # of a thread that saw no element
        for v in range(thread, length, gpu.blockDim.x):
            total = row[v] + bias[v]
            if total > best or first == length:
                best = total
                first = np.int32(v)
        sums[thread] = best
        firsts[thread] = first
        half = gpu.blockDim.x // 2
        while half > 0:
            gpu.syncthreads()
            if thread < half:
                candidate = sums[thread + half]
                other_first = firsts[thread + half]
                if candidate > best or (candidate == best and other_first < first):
                    best = candidate
                    first = other_first
                    sums[thread] = best
                    firsts[thread] = first
            half //= 2
        gpu.syncthreads()
        return firsts[0]

    return argmax
