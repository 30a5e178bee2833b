"""Sums and maxima: on the host device in a form that LLVM turns into vector code, on CUDA by a block of threads.

LLVM does not recognise the loops of plain Python as reductions: max() of two floats, for example, becomes a branch, and
a row of 256 takes 0.40 us instead of 0.05 (docs/log.md). Fast-math flags of a whole kernel would help too, but
reordered sums break the rounding inside `elementwise.exp`.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy import uint32

from reference_trainer.jit import njit
from reference_trainer.kernels.on_cuda import SHARED_THREADS, device_function, gpu

_LANES = 4


@intrinsic
def maxnum(typingctx, a, b):
    """The larger of two floats, neither of which is NaN."""

    def codegen(context, builder, signature, args):
        number = ir.FloatType() if a == types.float32 else ir.DoubleType()
        maximum = builder.module.declare_intrinsic("llvm.maxnum", [number], ir.FunctionType(number, [number, number]))
        return builder.call(maximum, args, fastmath=("nnan", "nsz"))

    return a(a, a), codegen


@intrinsic
def add_to(typingctx, total, term):
    """total + term, where LLVM may reorder the sums of a loop."""

    def codegen(context, builder, signature, args):
        return builder.fadd(*args, flags=("reassoc", "nsz"))

    return total(total, total), codegen


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


@device_function
def block_argmax(row, bias, length):
    """Find the index of the largest row[v] + bias[v] by a block of CUDA threads; the first of equal ones.

    All threads call it, once a kernel, and all get the index. The block has a power of two of threads, at most
    SHARED_THREADS.
    """
    sums = gpu.shared.array(SHARED_THREADS, np.float32)
    firsts = gpu.shared.array(SHARED_THREADS, np.uint32)
    thread, threads, end = uint32(gpu.threadIdx.x), uint32(gpu.blockDim.x), uint32(length)
    best = np.float32(-np.inf)
    first = end  # of a thread that saw no element
    v = thread
    lanes = gpu.local.array(_LANES, np.float32)
    while uint32(v + (_LANES - 1) * threads) < end:
        for lane in range(_LANES):  # loads of as many are in flight
            at = uint32(v + lane * threads)
            lanes[lane] = row[at] + bias[at]
        for lane in range(_LANES):
            if lanes[lane] > best or first == end:
                best = lanes[lane]
                first = uint32(v + lane * threads)
        v = uint32(v + _LANES * threads)
    while v < end:
        total = row[v] + bias[v]
        if total > best or first == end:
            best = total
            first = v
        v = uint32(v + threads)
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


@device_function
def block_sum(value):
    """Sum `value` over all threads of a CUDA block, which all call it and all get the sum; as `block_argmax`.

    It is added up as a tree: the same bits each time, and few roundings.
    """
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
