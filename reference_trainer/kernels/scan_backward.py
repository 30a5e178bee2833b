"""Computes the gradient of a leaky-integrator layer over a chunk, backward in time: of its projection and its bias."""

from __future__ import annotations

import numpy as np
from numpy import uint32

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import matrix, number
from reference_trainer.kernels.elementwise import keep_share, retention
from reference_trainer.kernels.on_cuda import device_helper, gpu, on_cuda, place_in_columns
from reference_trainer.kernels.time_blocks import GROUP, TILE, fold_behind, launch_sizes

_ZERO, _ONE = np.float32(0), np.float32(1)


def host(command):
    """Compute dL/dprojected and dL/dbias from grad_t = dL/dy_t; h_t = a_t h_{t-1} + (1 - a_t) v_t and y_t = x_t + h_t.

    dL/dh_t = grad_t + a_{t+1} dL/dh_{t+1}, zero beyond the end of the chunk; the gate gets
    dL/dh_t (h_{t-1} - v_t) a_t (1 - a_t), the value dL/dh_t (1 - a_t), and the bias their sums over t.

    Arguments: dprojected (T, 2D), grad (T, D), projected (T, 2D) before bias, bias (layers, 2D), hidden (T, D) = h_t,
    saved_state (layers, D) = h_{-1}, dbias (layers, 2D) of which row `layer` is written, T, D, layer, layers.
    """
    tokens, width, layer, layers = number(command, 7), number(command, 8), number(command, 9), number(command, 10)
    dprojected = matrix(command, 0, tokens, 2 * width)
    grad = matrix(command, 1, tokens, width)
    projected = matrix(command, 2, tokens, 2 * width)
    bias = matrix(command, 3, layers, 2 * width)[layer]
    hidden = matrix(command, 4, tokens, width)
    dbias = matrix(command, 6, layers, 2 * width)[layer]
    saved = matrix(command, 5, layers, width)[layer]
    for j in range(2 * width):
        dbias[j] = _ZERO
    for back in range(tokens):
        # The length is read anew at each step so that LLVM does not see rows go backward: it would check for overlaps
        # once for all rows, find a negative stride, and take its scalar path (3.6 instead of 0.3 ns an element).
        t = number(command, 7) - 1 - back
        before = hidden[t - 1] if t > 0 else saved
        for j in range(width):
            keep = keep_share(projected[t, j] + bias[j])
            value = projected[t, width + j] + bias[width + j]
            dh = grad[t, j] + dbias[j]
            dvalue = dh * (_ONE - keep)
            dbias[j] = dh * keep  # what goes on to h_{t-1}; the sums come after, in the same place
            dprojected[t, j] = dvalue * keep * (before[j] - value)
            dprojected[t, width + j] = dvalue
    for j in range(width):
        dbias[j] = _ZERO
    for t in range(tokens):
        for j in range(2 * width):
            dbias[j] += dprojected[t, j]


keep_of = device_helper(retention)


@on_cuda("void(float32[::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], int64, int64, int64, int64, int64)")
def backward_ends(ends, grad, projected, bias, tokens, width, layer, length, blocks):
    """Compute (A, B) of each block of time for c <- a_t (grad_t + c), backward; one thread per block and channel."""
    block, j = place_in_columns(width)
    if j >= width:
        return
    gates = gpu.local.array(TILE, np.float32)
    grads = gpu.local.array(TILE, np.float32)
    gate_bias = bias[layer, j]
    retained = np.float32(1)
    carry = np.float32(0)
    begin = uint32(block * length)
    t = uint32(min(uint32(begin + length), uint32(tokens)))
    while uint32(begin + TILE) <= t:
        t = uint32(t - TILE)
        tile, grad_tile = projected[t:], grad[t:]
        for i in range(TILE):
            gates[i] = tile[i, j]
            grads[i] = grad_tile[i, j]
        gpu.threadfence_block()  # as in scan_ends: all loads are in flight together
        for back in range(TILE):
            keep = keep_of(gates[TILE - 1 - back] + gate_bias)
            retained *= keep
            carry = keep * (grads[TILE - 1 - back] + carry)
    while t > begin:
        t = uint32(t - 1)
        keep = keep_of(projected[t, j] + gate_bias)
        retained *= keep
        carry = keep * (grad[t, j] + carry)
    ends[uint32(block * width + j)] = carry
    ends[uint32((blocks + block) * width + j)] = retained


@on_cuda(
    "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1],"
    " float32[:, ::1], float32[::1], int64, int64, int64, int64, int64)"
)
def backward_block(dprojected, grad, projected, bias, hidden, saved, dbias, ends, tokens, width, layer, length, blocks):
    """Compute one block of time of one channel per thread; its part of dbias goes to `ends`, or to dbias."""
    block, j = place_in_columns(width)
    if j >= width:
        return
    gates = gpu.local.array(TILE, np.float32)
    values = gpu.local.array(TILE, np.float32)
    grads = gpu.local.array(TILE, np.float32)
    befores = gpu.local.array(TILE, np.float32)
    gate_bias = bias[layer, j]
    value = uint32(width + j)
    value_bias = bias[layer, value]
    gate_sum = np.float32(0)
    value_sum = np.float32(0)
    carry = fold_behind(ends, block, blocks, width, j)
    begin = uint32(block * length)
    t = uint32(min(uint32(begin + length), uint32(tokens)))
    while uint32(begin + TILE) <= t:
        t = uint32(t - TILE)
        tile, grad_tile, target = projected[t:], grad[t:], dprojected[t:]
        for i in range(TILE):
            gates[i] = tile[i, j]
            values[i] = tile[i, value]
            grads[i] = grad_tile[i, j]
            befores[i] = hidden[uint32(t + i - 1), j] if uint32(t + i) > 0 else saved[layer, j]
        for back in range(TILE):
            i = TILE - 1 - back
            keep = keep_of(gates[i] + gate_bias)
            dh = grads[i] + carry
            dvalue = dh * (np.float32(1) - keep)
            dgate = dvalue * keep * (befores[i] - (values[i] + value_bias))
            carry = dh * keep
            gate_sum += dgate
            value_sum += dvalue
            target[i, j] = dgate
            target[i, value] = dvalue
    while t > begin:
        t = uint32(t - 1)
        earlier = hidden[uint32(t - 1), j] if t > 0 else saved[layer, j]
        keep = keep_of(projected[t, j] + gate_bias)
        dh = grad[t, j] + carry
        dvalue = dh * (np.float32(1) - keep)
        dgate = dvalue * keep * (earlier - (projected[t, value] + value_bias))
        carry = dh * keep
        gate_sum += dgate
        value_sum += dvalue
        dprojected[t, j] = dgate
        dprojected[t, value] = dvalue
    if blocks == 1:
        dbias[layer, j] = gate_sum
        dbias[layer, value] = value_sum
    else:
        ends[uint32(2 * (blocks + block) * width + j)] = gate_sum
        ends[uint32(2 * (blocks + block) * width + value)] = value_sum


@on_cuda("void(float32[:, ::1], float32[::1], int64, int64, int64)")
def add_blocks(dbias, ends, width, layer, blocks):
    """Sum dbias over the blocks in order of time: the same bits each time."""
    j = uint32(gpu.grid(1))
    if j < 2 * width:
        total = np.float32(0)
        at, end = uint32(2 * blocks * width + j), uint32(4 * blocks * width)
        while at < end:
            total += ends[at]
            at = uint32(at + 2 * width)
        dbias[layer, j] = total


def cuda(device, dprojected, grad, projected, bias, hidden, saved_state, dbias, tokens, width, layer, layers):
    blocks, length, grid, threads = launch_sizes(tokens, width)
    ends = device.scratch(4 * blocks * width)
    sizes = tokens, width, layer, length, blocks
    if blocks > 1:
        device.start(backward_ends, grid, threads, ends, grad, projected, bias, *sizes)
    arrays = dprojected, grad, projected, bias, hidden, saved_state, dbias, ends
    device.start(backward_block, grid, threads, *arrays, *sizes)
    if blocks > 1:
        device.start(add_blocks, -(-2 * width // GROUP), GROUP, dbias, ends, width, layer, blocks)


KERNEL = Kernel("scan backward", host=host, cuda=cuda, fastmath={"contract"})
