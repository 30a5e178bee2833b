"""Computes one leaky-integrator layer over a whole chunk and keeps what its backward pass reads."""

from __future__ import annotations

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import matrix, number
from reference_trainer.kernels.elementwise import leaky_step
from reference_trainer.kernels.scan import launch_scan


def host(command):
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


def cuda(device, y, x, projected, bias, state, saved_state, hidden, tokens, width, layer, layers):
    launch_scan(device, y, x, projected, bias, state, saved_state, hidden, None, tokens, width, layer)


KERNEL = Kernel("scan, keeping", host=host, cuda=cuda, fastmath={"contract"})
