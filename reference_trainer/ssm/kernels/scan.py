"""The impulse response of diagonal state-space students by the recurrence over time, and its gradient, a kernel each.

A student is linear in what goes in: the response k to an impulse says all, and what comes out at the end of any other
sequence is y = sum_t x_{T-1-t} k_t. So the recurrence runs once a student, whatever the number of sequences:

    h_t = a h_{t-1} from h_0 = c b, and k_t = sum over the channels of h_t

The gradient needs no states kept. With w_t = dL/dk_t + sum_n dL/dy_n x_{n,T-1-t}, a channel's share of L is
c b sum_t w_t a^t: a polynomial in a. Horner's scheme, a recurrence backward in time, gives it and its derivative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reference_trainer.jit import njit
from reference_trainer.kernels.elementwise import advance_on_host, linear_step
from reference_trainer.kernels.on_cuda import compiled_as, on_cuda
from reference_trainer.kernels.reductions import add_to

gpu: Any = None  # numba.cuda, put here by on_cuda
advance: Any = None  # likewise

TILE = 16
"""Time steps of a CUDA block: as in the language model's scan, a thread has that many in its registers."""
THREADS = 128
_GONE = np.float32(1e-30)
"""A state below it is 0: processors take some 100 cycles for each number that is too small for its exponent's range."""
_TERMS = TILE * THREADS
_PARTS = THREADS // TILE  # threads that add up one time step of a block


@njit(cache=True, nogil=True, fastmath={"contract"})
def host_responses(responses, outputs, a, b, c, inputs):
    """responses (S, T) and outputs (S, N) of students a, b, c (S, d), all of one type.

    inputs (J, N, T): the first S / J students are given the first sequences, and so on.
    """
    students, channels = a.shape
    _, sequences, length = inputs.shape
    count = students // len(inputs)
    h = np.empty_like(a[0])
    for s in range(students):
        for j in range(channels):
            h[j] = b[s, j] * c[s, j]
        for t in range(length):
            total = a.dtype.type(0)
            for j in range(channels):
                total = add_to(total, h[j])
                kept = a[s, j] * h[j]
                h[j] = 0 if abs(kept) < _GONE else kept  # a NaN stays one
            responses[s, t] = total
        for n in range(sequences):
            total = a.dtype.type(0)
            for t in range(length):
                total = add_to(total, inputs[s // count, n, length - 1 - t] * responses[s, t])
            outputs[s, n] = total


@njit(cache=True, nogil=True, fastmath={"contract"})
def host_gradients(da, db, dc, a, b, c, inputs, dresponses, doutputs):
    """dL/da, dL/db, dL/dc (S, d) from dL/dresponses (S, T) and dL/doutputs (S, N)."""
    students, channels = a.shape
    _, sequences, length = inputs.shape
    count = students // len(inputs)
    weights = np.empty_like(dresponses[0])
    value = np.empty_like(a[0])
    slope = np.empty_like(a[0])
    for s in range(students):
        for t in range(length):
            weights[t] = dresponses[s, t]
        for n in range(sequences):
            for t in range(length):
                weights[t] += doutputs[s, n] * inputs[s // count, n, length - 1 - t]
        for j in range(channels):
            value[j] = 0
            slope[j] = 0
        for back in range(length):
            weight = weights[length - 1 - back]
            for j in range(channels):
                slope[j] = advance_on_host(slope[j], a[s, j], value[j])
                value[j] = advance_on_host(value[j], a[s, j], weight)
        for j in range(channels):
            da[s, j] = b[s, j] * c[s, j] * slope[j]
            db[s, j] = c[s, j] * value[j]
            dc[s, j] = b[s, j] * value[j]


@on_cuda("void(float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], int64, int64, int64)")
def response_block(responses, a, b, c, channels, length, tiles):
    """A tile of time of one student a CUDA block, its channels over the threads.

    The state before a tile needs no other tile: a is the same at all times, so it is c b a^t.
    """
    student = gpu.blockIdx.x // tiles
    begin = (gpu.blockIdx.x - student * tiles) * TILE
    thread = gpu.threadIdx.x
    totals = gpu.local.array(TILE, np.float32)
    for i in range(TILE):
        totals[i] = np.float32(0)
    for j in range(thread, channels, THREADS):
        keep = a[student, j]
        h = b[student, j] * c[student, j]
        square = keep
        left = begin
        while left > 0:
            if left & 1:
                h *= square
            square *= square
            left >>= 1
        for i in range(TILE):
            totals[i] += h
            h = keep * h
    parts = gpu.shared.array(_TERMS, np.float32)
    sums = gpu.shared.array(THREADS, np.float32)
    for i in range(TILE):
        parts[i * THREADS + thread] = totals[i]
    gpu.syncthreads()
    total = np.float32(0)
    for i in range(TILE):  # THREADS / _PARTS = TILE values each; neighbours read neighbours
        total += parts[(thread // _PARTS) * THREADS + i * _PARTS + thread % _PARTS]
    sums[thread] = total
    gpu.syncthreads()
    if thread < TILE and begin + thread < length:
        total = np.float32(0)
        for i in range(_PARTS):
            total += sums[thread * _PARTS + i]
        responses[student, begin + thread] = total


@on_cuda(
    "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1],"
    " float32[:, ::1], int64, int64, int64)",
    advance=compiled_as(linear_step),
)
def response_gradients(da, db, dc, a, b, c, weights, students, channels, length):
    """A channel of a student a thread; weights (S, T) are w_t of the module's text, the same for a whole warp."""
    thread = gpu.grid(1)
    s = thread // channels
    if s >= students:
        return
    j = thread - s * channels
    loaded = gpu.local.array(TILE, np.float32)
    keep = a[s, j]
    value = np.float32(0)
    slope = np.float32(0)
    end = length
    while end >= TILE:
        end -= TILE
        for i in range(TILE):
            loaded[i] = weights[s, end + i]
        for back in range(TILE):
            slope = advance(slope, keep, value)
            value = advance(value, keep, loaded[TILE - 1 - back])
    for t in range(end - 1, -1, -1):
        slope = advance(slope, keep, value)
        value = advance(value, keep, weights[s, t])
    da[s, j] = b[s, j] * c[s, j] * slope
    db[s, j] = c[s, j] * value
    dc[s, j] = b[s, j] * value
