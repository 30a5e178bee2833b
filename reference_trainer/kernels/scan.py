"""Computes one leaky-integrator layer over a whole chunk: gates, linear recurrence over time, residual.

The scan of learning keeps what its backward pass reads.
"""

from __future__ import annotations

import numpy as np
from numpy import uint32

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import matrix, number, vector
from reference_trainer.kernels.elementwise import leaky_integrator, leaky_step, retention
from reference_trainer.kernels.on_cuda import device_helper, gpu, on_cuda, place_in_columns
from reference_trainer.kernels.time_blocks import TILE, fold_before, launch_sizes


def scan_host(command):
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


def keeping_host(command):
    """Compute h_t = a_t h_{t-1} + (1 - a_t) v_t and y_t = x_t + h_t; x does not change.

    Arguments: y (T, D), x (T, D), projected (T, 2D) = x @ [W_gate | W_value] before bias, bias (layers, 2D),
    state (layers, D) carried from chunk to chunk, saved_state (layers, D) = the state before this chunk,
    hidden (T, D) = h_t, T, D, layer, layers.
    """
    tokens, width, layer, layers = number(command, 7), number(command, 8), number(command, 9), number(command, 10)
    y = matrix(command, 0, tokens, width)
    x = matrix(command, 1, tokens, width)
    projected = matrix(command, 2, tokens, 2 * width)
    bias = matrix(command, 3, layers, 2 * width)[layer]
    state = matrix(command, 4, layers, width)[layer]
    saved = matrix(command, 5, layers, width)[layer]
    hidden = matrix(command, 6, tokens, width)
    for j in range(width):
        saved[j] = state[j]
    for t in range(tokens):
        for j in range(width):
            h = leaky_step(state[j], projected[t, j] + bias[j], projected[t, width + j] + bias[width + j])
            state[j] = h
            hidden[t, j] = h
            y[t, j] = x[t, j] + h


keep_of = device_helper(retention)
step = device_helper(leaky_integrator)


@on_cuda(
    "void(float32[::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[::1],"
    " int64, int64, int64, int64, int64, int64, int64)"
)
def scan_ends(ends, projected, bias, state, saved, modulator, tokens, width, layer, length, blocks, modulated, saving):
    """Compute (A, B) of each block of time, in `ends` as in `fold_before`; one thread per block and channel."""
    block, j = place_in_columns(width)
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
    block, j = place_in_columns(width)
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
        h = fold_before(ends, block, blocks, width, j)
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
    blocks, length, grid, threads = launch_sizes(tokens, width)
    ends = device.scratch((2 * blocks + 1) * width)
    modulated, saving = int(modulator is not None), int(hidden is not None)
    # what the flags rule out is never touched, but has to be there
    modulator, saved, hidden = modulator or ends, saved or state, hidden or x
    sizes = tokens, width, layer, length, blocks, modulated, saving
    if blocks > 1:
        device.start(scan_ends, grid, threads, ends, projected, bias, state, saved, modulator, *sizes)
    device.start(scan_block, grid, threads, y, x, projected, bias, state, saved, hidden, modulator, ends, *sizes)


def scan_cuda(device, x, projected, bias, state, modulator, tokens, width, layer, layers):
    launch_scan(device, x, x, projected, bias, state, None, None, modulator, tokens, width, layer)


def keeping_cuda(device, y, x, projected, bias, state, saved_state, hidden, tokens, width, layer, layers):
    launch_scan(device, y, x, projected, bias, state, saved_state, hidden, None, tokens, width, layer)


SCAN = Kernel("scan", host=scan_host, cuda=scan_cuda, fastmath={"contract"})
KEEPING = Kernel("scan, keeping", host=keeping_host, cuda=keeping_cuda, fastmath={"contract"})
