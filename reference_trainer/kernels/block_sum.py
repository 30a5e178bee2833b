"""Sum over a block of CUDA threads, in shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference_trainer.kernels.on_cuda import SHARED_THREADS

gpu: Any = None  # numba.cuda, put here by on_cuda


def block_sum(compiled):
    """total(value), compiled by `compiled`: the sum over all threads of the block, which all call it and all get it.

    A power of two of threads, at most SHARED_THREADS. Added up as a tree: the same bits each time, and few roundings.
    """

    @compiled
    def total(value):
        sums = gpu.shared.array(SHARED_THREADS, np.float32)
        thread = gpu.threadIdx.x
        gpu.syncthreads()  # all have read what a call before left
        sums[thread] = value
        half = gpu.blockDim.x // 2
        while half > 0:
            gpu.syncthreads()
            if thread < half:
                sums[thread] += sums[thread + half]
            half //= 2
        gpu.syncthreads()
        return sums[0]

    return total
