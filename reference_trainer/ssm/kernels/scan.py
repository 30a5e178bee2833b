"""The impulse response of diagonal state-space students by the recurrence over time, and its gradient: a kernel each.

A student is linear in its input, so the response k to an impulse determines it: its output at the end of any sequence
is y = sum_t x_{T-1-t} k_t. So the recurrence runs once per student, whatever the number of sequences:

    h_t = a h_{t-1} from h_0 = c b, and k_t = sum over the channels of h_t

The gradient needs no states kept. With w_t = dL/dk_t + sum_n dL/dy_n x_{n,T-1-t}, a channel's share of L is
c b sum_t w_t a^t: a polynomial in a. Horner's scheme, a recurrence backward in time, gives it and its derivative.
"""

from __future__ import annotations

import numpy as np
from numpy import uint32

from reference_trainer.jit import njit
from reference_trainer.kernels.elementwise import advance_on_host, linear_step
from reference_trainer.kernels.on_cuda import device_function, gpu, on_cuda
from reference_trainer.kernels.reductions import add_to

TILE = 16
"""Time steps of a CUDA block: as in the language model's scan, a thread keeps that many in its registers."""
THREADS = 128
_GONE = np.float32(1e-30)
"""A state below this is set to 0: processors take some 100 cycles for each denormal number."""
_TERMS = TILE * THREADS
_PARTS = THREADS // TILE  # threads that add up one time step of a block


@njit(fastmath={"contract"})
def _respond(response, h, a, b, c):
    """Compute k of one student; h (d,) is scratch."""
    for j in range(len(a)):
        h[j] = b[j] * c[j]
    for t in range(len(response)):
        total = a.dtype.type(0)
        for j in range(len(a)):
            total = add_to(total, h[j])
            retained = a[j] * h[j]
            h[j] = 0 if abs(retained) < _GONE else retained  # a NaN stays one
        response[t] = total


@njit(fastmath={"contract"})
def _apply_response(response, sequence):
    """Compute y of one sequence."""
    total = response.dtype.type(0)
    for t in range(len(response)):
        total = add_to(total, sequence[len(response) - 1 - t] * response[t])
    return total


@njit(fastmath={"contract"})
def _add_turned(weights, sequence, share):
    """Add a sequence, its latest value first, times dL/dy."""
    for t in range(len(weights)):
        weights[t] += share * sequence[len(weights) - 1 - t]


@njit(fastmath={"contract"})
def _descend(da, db, dc, slope, a, b, c, weights):
    """Compute the gradient of one student by Horner's scheme; slope (d,) is scratch, and dc holds the value."""
    for j in range(len(a)):
        dc[j] = 0
        slope[j] = 0
    for back in range(len(weights)):
        weight = weights[len(weights) - 1 - back]
        for j in range(len(a)):
            slope[j] = advance_on_host(slope[j], a[j], dc[j])
            dc[j] = advance_on_host(dc[j], a[j], weight)
    for j in range(len(a)):
        value = dc[j]
        da[j] = b[j] * c[j] * slope[j]
        db[j] = c[j] * value
        dc[j] = b[j] * value


@njit(cache=True, nogil=True)
def host_responses(responses, outputs, a, b, c, inputs):
    """Compute responses (S, T) and outputs (S, N) of students a, b, c (S, d), all of one type.

    inputs (J, N, T): the first S / J students are given the first sequences, and so on.
    """
    count = len(a) // len(inputs)
    h = np.empty_like(a[0])
    for s in range(len(a)):
        _respond(responses[s], h, a[s], b[s], c[s])
        for n in range(inputs.shape[1]):
            outputs[s, n] = _apply_response(responses[s], inputs[s // count, n])


@njit(cache=True, nogil=True)
def host_gradients(da, db, dc, a, b, c, inputs, dresponses, doutputs):
    """Compute dL/da, dL/db, dL/dc (S, d) from dL/dresponses (S, T) and dL/doutputs (S, N)."""
    count = len(a) // len(inputs)
    weights = np.empty_like(dresponses[0])
    slope = np.empty_like(a[0])
    for s in range(len(a)):
        weights[:] = dresponses[s]
        for n in range(inputs.shape[1]):
            _add_turned(weights, inputs[s // count, n], doutputs[s, n])
        _descend(da[s], db[s], dc[s], slope, a[s], b[s], c[s], weights)


@njit(cache=True, nogil=True)
def host_losses(losses, outputs, gradient, parameters, inputs, targets):
    """Compute mean squared errors (S,) of outputs (S, N) from targets (S, N), and their gradient (3, S, d), at once.

    parameters (3, S, d) are a, b and c; inputs (J, N, T) as in host_responses.
    """
    _, students, channels = parameters.shape
    count = students // len(inputs)
    sequences, length = inputs.shape[1:]
    scratch = np.empty(channels, parameters.dtype)
    response = np.empty(length, parameters.dtype)
    weights = np.empty_like(response)
    for s in range(students):
        a, b, c = parameters[0, s], parameters[1, s], parameters[2, s]
        _respond(response, scratch, a, b, c)
        weights[:] = 0
        total = parameters.dtype.type(0)
        for n in range(sequences):
            outputs[s, n] = _apply_response(response, inputs[s // count, n])
            error = outputs[s, n] - targets[s, n]
            total += error * error
            _add_turned(weights, inputs[s // count, n], (error + error) / sequences)
        losses[s] = total / sequences
        _descend(gradient[0, s], gradient[1, s], gradient[2, s], scratch, a, b, c, weights)


advance = device_function(linear_step)


@on_cuda("void(float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], int64, int64, int64)")
def response_block(responses, a, b, c, channels, length, tiles):
    """Compute a tile of time of one student per CUDA block, with the channels distributed over the threads.

    The state before a tile needs no other tile: a is the same at all times, so it is c b a^t.
    """
    number, thread, end = uint32(gpu.blockIdx.x), uint32(gpu.threadIdx.x), uint32(channels)
    student = uint32(number // uint32(tiles))
    begin = uint32((number - student * tiles) * TILE)
    totals = gpu.local.array(TILE, np.float32)
    for i in range(TILE):
        totals[i] = np.float32(0)
    j = thread
    while j < end:
        keep = a[student, j]
        h = b[student, j] * c[student, j]
        square = keep
        remaining = begin
        while remaining > 0:
            if remaining & 1:
                h *= square
            square *= square
            remaining = uint32(remaining >> 1)
        for i in range(TILE):
            totals[i] += h
            h = keep * h
        j = uint32(j + THREADS)
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
    t = uint32(begin + thread)
    if thread < TILE and t < length:
        total = np.float32(0)
        for i in range(_PARTS):
            total += sums[thread * _PARTS + i]
        responses[student, t] = total


@on_cuda(
    "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1],"
    " float32[:, ::1], int64, int64, int64)"
)
def response_gradients(da, db, dc, a, b, c, weights, students, channels, length):
    """Compute the gradient of one channel per thread; weights (S, T) are w_t of the module's docstring."""
    thread = gpu.grid(1)
    s = uint32(thread // channels)
    if s >= students:
        return
    j = uint32(thread - s * channels)
    loaded = gpu.local.array(TILE, np.float32)
    keep, row = a[s, j], weights[s]
    value = np.float32(0)
    slope = np.float32(0)
    t = uint32(length)
    while t >= TILE:
        t = uint32(t - TILE)
        tile = row[t:]
        for i in range(TILE):
            loaded[i] = tile[i]
        for back in range(TILE):
            slope = advance(slope, keep, value)
            value = advance(value, keep, loaded[TILE - 1 - back])
    while t > 0:
        t = uint32(t - 1)
        slope = advance(slope, keep, value)
        value = advance(value, keep, row[t])
    da[s, j] = b[s, j] * c[s, j] * slope
    db[s, j] = c[s, j] * value
    dc[s, j] = b[s, j] * value
