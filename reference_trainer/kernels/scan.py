"""Computes one leaky-integrator layer over a whole chunk: gates, linear recurrence over time, residual."""

from __future__ import annotations

import numpy as np
from numpy import uint32

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import matrix, number, vector
from reference_trainer.kernels.elementwise import leaky_integrator, leaky_step, retention
from reference_trainer.kernels.on_cuda import (
    device_function,
    device_helper,
    gpu,
    on_cuda,
    place_in_columns,
    threads_for,
)
from reference_trainer.kernels.time_blocks import GROUP, TILE, fold_before, time_blocks

_WARP = 32  # threads of a CUDA block of a serial scan: one warp, so that the channels spread over all multiprocessors


def host(command):
    """Compute h_t = a_t h_{t-1} + (1 - a_t) v_t and x_t += h_t, in place.

    Arguments: x (T, D), projected (T, 2D) = x @ [W_gate | W_value] before bias, bias (layers, 2D),
    state (layers, D) carried from chunk to chunk, modulator (1,) added to the gate's bias, T, D, layer, layers.
    """
    tokens, width, layer, layers = number(command, 5), number(command, 6), number(command, 7), number(command, 8)
    x = matrix(command, 0, tokens, width)
    projected = matrix(command, 1, tokens, 2 * width)
    bias = matrix(command, 2, layers, 2 * width)[layer]
    state = matrix(command, 3, layers, width)[layer]
    modulator = vector(command, 4, 1)[0]
    for t in range(tokens):
        for j in range(width):
            gate = projected[t, j] + bias[j] + modulator
            h = leaky_step(state[j], gate, projected[t, width + j] + bias[width + j])
            state[j] = h
            x[t, j] += h


keep_of = device_helper(retention)
step = device_helper(leaky_integrator)
before = device_helper(fold_before)
place = device_function(place_in_columns)


@on_cuda(
    "void(float32[::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[::1],"
    " int64, int64, int64, int64, int64, int64, int64)"
)
def scan_ends(ends, projected, bias, state, saved, modulator, tokens, width, layer, length, blocks, modulated, saving):
    """Compute (A, B) of each block of time, in `ends` as in `fold_before`; one thread per block and channel."""
    block, j = place(width)
    if j >= width:
        return
    gates = gpu.local.array(TILE, np.float32)
    values = gpu.local.array(TILE, np.float32)
    gate_bias = bias[layer, j]
    if modulated:
        gate_bias += modulator[0]
    value = uint32(width + j)
    value_bias = bias[layer, value]
    retained = np.float32(1)
    h = np.float32(0)
    if block == 0:
        h = state[layer, j]
        ends[uint32(2 * blocks * width + j)] = h
        if saving:
            saved[layer, j] = h
    t = uint32(block * length)
    end = uint32(min(uint32(t + length), uint32(tokens)))
    while uint32(t + TILE) <= end:
        tile = projected[t:]
        for i in range(TILE):
            gates[i] = tile[i, j]
            values[i] = tile[i, value]
        gpu.threadfence_block()  # ptxas would move the loads down to where they are used: two in flight, not 32
        for i in range(TILE):
            keep = keep_of(gates[i] + gate_bias)
            retained *= keep
            h = keep * h + (np.float32(1) - keep) * (values[i] + value_bias)
        t = uint32(t + TILE)
    while t < end:
        keep = keep_of(projected[t, j] + gate_bias)
        retained *= keep
        h = keep * h + (np.float32(1) - keep) * (projected[t, value] + value_bias)
        t = uint32(t + 1)
    ends[uint32(block * width + j)] = h
    ends[uint32((blocks + block) * width + j)] = retained


@on_cuda(
    "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1],"
    " float32[:, ::1], float32[::1], float32[::1], int64, int64, int64, int64, int64, int64, int64)"
)
def scan_block(
    y,
    x,
    projected,
    bias,
    state,
    saved,
    hidden,
    modulator,
    ends,
    tokens,
    width,
    layer,
    length,
    blocks,
    modulated,
    saving,
):
    """Compute one block of time of one channel per thread, from the state before it; one block is the whole channel.

    y may be x. Only with `saving` are `saved` and `hidden` written, only with `modulated` is `modulator` read.
    """
    block, j = place(width)
    if j >= width:
        return
    gates = gpu.local.array(TILE, np.float32)
    values = gpu.local.array(TILE, np.float32)
    inputs = gpu.local.array(TILE, np.float32)
    gate_bias = bias[layer, j]
    if modulated:
        gate_bias += modulator[0]
    value = uint32(width + j)
    value_bias = bias[layer, value]
    if blocks == 1:
        h = state[layer, j]
        if saving:
            saved[layer, j] = h
    else:
        h = before(ends, block, blocks, width, j)
    t = uint32(block * length)
    end = uint32(min(uint32(t + length), uint32(tokens)))
    while uint32(t + TILE) <= end:
        tile, x_tile, y_tile, hidden_tile = projected[t:], x[t:], y[t:], hidden[t:]
        for i in range(TILE):
            gates[i] = tile[i, j]
            values[i] = tile[i, value]
            inputs[i] = x_tile[i, j]
        for i in range(TILE):
            h = step(h, gates[i] + gate_bias, values[i] + value_bias)
            y_tile[i, j] = inputs[i] + h
            if saving:
                hidden_tile[i, j] = h
        t = uint32(t + TILE)
    while t < end:
        h = step(h, projected[t, j] + gate_bias, projected[t, value] + value_bias)
        y[t, j] = x[t, j] + h
        if saving:
            hidden[t, j] = h
        t = uint32(t + 1)
    if end == tokens:
        state[layer, j] = h


def launch_scan(device, y, x, projected, bias, state, saved, hidden, modulator, tokens, width, layer):
    """Launch the scan, in blocks of time where that is faster.

    :param modulator: None: there is none.
    :param hidden: None: neither it nor `saved` is written.
    """
    blocks, length = time_blocks(tokens, width)
    threads = threads_for(width, GROUP if blocks > 1 else _WARP)
    grid = blocks * -(-width // threads)
    ends = device.scratch((2 * blocks + 1) * width)
    modulated, saving = int(modulator is not None), int(hidden is not None)
    # what the flags rule out is never touched, but has to be there
    modulator, saved, hidden = modulator or ends, saved or state, hidden or x
    sizes = tokens, width, layer, length, blocks, modulated, saving
    if blocks > 1:
        device.start(scan_ends, grid, threads, ends, projected, bias, state, saved, modulator, *sizes)
    device.start(scan_block, grid, threads, y, x, projected, bias, state, saved, hidden, modulator, ends, *sizes)


def cuda(device, x, projected, bias, state, modulator, tokens, width, layer, layers):
    launch_scan(device, x, x, projected, bias, state, None, None, modulator, tokens, width, layer)


KERNEL = Kernel("scan", host=host, cuda=cuda, fastmath={"contract"})
