"""Computes all layers and the readout of one token: the recurrent step of the token-by-token loop."""

from __future__ import annotations

import numpy as np
from numpy import uint32

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import matrix, number, vector
from reference_trainer.kernels.elementwise import leaky_integrator, leaky_step
from reference_trainer.kernels.on_cuda import ONE_BLOCK_ELEMENTS, device_helper, gpu, on_cuda, threads_for

_MOST_THREADS = 512  # of the one block; more would each have fewer than 128 registers
_LEAKY_THREADS = 128


def host(command):
    """Compute one row of readouts (_, D) from one row of embeddings x (_, D), which is overwritten.

    Arguments: readouts, x, weights (layers * D, 2D), bias (layers, 2D), readout_weight (D, D),
    state (layers, D), modulator (1,), projected (2D,) as scratch, D, layers, row of readouts, row of x.
    """
    width, layers, readout_row, x_row = number(command, 8), number(command, 9), number(command, 10), number(command, 11)
    readout = matrix(command, 0, readout_row + 1, width)[readout_row]
    x = matrix(command, 1, x_row + 1, width)[x_row]
    weights = matrix(command, 2, layers * width, 2 * width)
    bias = matrix(command, 3, layers, 2 * width)
    readout_weight = matrix(command, 4, width, width)
    state = matrix(command, 5, layers, width)
    modulator = vector(command, 6, 1)[0]
    projected = vector(command, 7, 2 * width)
    for layer in range(layers):
        for j in range(2 * width):
            projected[j] = bias[layer, j]
        for k in range(width):
            xk = x[k]
            for j in range(2 * width):
                projected[j] += xk * weights[layer * width + k, j]
        for j in range(width):
            h = leaky_step(state[layer, j], projected[j] + modulator, projected[width + j])
            state[layer, j] = h
            x[j] += h
    for j in range(width):
        readout[j] = 0
    for k in range(width):
        xk = x[k]
        for j in range(width):
            readout[j] += xk * readout_weight[k, j]


step = device_helper(leaky_integrator)


@on_cuda(
    "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1],"
    " float32[::1], float32[::1], int64, int64, int64, int64)"
)
def step_in_one_block(
    readouts, xs, weights, bias, readout_weight, state, modulator, projected, width, layers, readout_row, x_row
):
    """Compute everything by one block; neighbouring threads read neighbouring columns of the weights."""
    readout = readouts[readout_row]
    x = xs[x_row]
    thread, threads, columns = uint32(gpu.threadIdx.x), uint32(gpu.blockDim.x), uint32(width)
    layer = uint32(0)
    while layer < layers:
        j = thread
        while j < 2 * columns:
            total = bias[layer, j]
            k = uint32(0)
            while k < columns:
                total += x[k] * weights[uint32(layer * columns + k), j]
                k = uint32(k + 1)
            projected[j] = total
            j = uint32(j + threads)
        gpu.syncthreads()
        j = thread
        while j < columns:
            h = step(state[layer, j], projected[j] + modulator[0], projected[uint32(columns + j)])
            state[layer, j] = h
            x[j] += h
            j = uint32(j + threads)
        gpu.syncthreads()
        layer = uint32(layer + 1)
    j = thread
    while j < columns:
        total = np.float32(0)
        k = uint32(0)
        while k < columns:
            total += x[k] * readout_weight[k, j]
            k = uint32(k + 1)
        readout[j] = total
        j = uint32(j + threads)


@on_cuda("void(float32[:, ::1], float32[::1], float32[:, ::1], float32[:, ::1], float32[::1], int64, int64, int64)")
def leak(xs, projected, bias, state, modulator, width, layer, x_row):
    """Compute one layer after its product, one thread per channel."""
    x = xs[x_row]
    j = uint32(gpu.grid(1))
    if j < width:
        value = uint32(width + j)
        gate = projected[j] + bias[layer, j] + modulator[0]
        h = step(state[layer, j], gate, projected[value] + bias[layer, value])
        state[layer, j] = h
        x[j] += h


def cuda(
    device, readouts, x, weights, bias, readout_weight, state, modulator, projected, width, layers, readout_row, x_row
):
    if 2 * width * width <= ONE_BLOCK_ELEMENTS:
        threads = threads_for(2 * width, _MOST_THREADS)
        arguments = (readouts, x, weights, bias, readout_weight, state, modulator, projected, width, layers)
        device.start(step_in_one_block, 1, threads, *arguments, readout_row, x_row)
        return
    row = x.tensor[x_row]
    for layer in range(layers):
        device.vector_matrix(projected.tensor, row, weights, layer)
        blocks = -(-width // _LEAKY_THREADS)
        device.start(leak, blocks, _LEAKY_THREADS, x, projected, bias, state, modulator, width, layer, x_row)
    device.vector_matrix(readouts.tensor[readout_row], row, readout_weight)


KERNEL = Kernel("recurrent step", host=host, cuda=cuda, fastmath={"contract"})
