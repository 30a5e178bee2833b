"""AdamW with clipped gradients; step count and learning rate are kept on the device, so no step needs the host."""

from __future__ import annotations

import math

import numpy as np
from numpy import uint32

from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import number, vector
from reference_trainer.kernels.elementwise import (
    adam_step,
    adam_update,
    clip_share,
    learning_rate,
    one_minus_power,
    scheduled_rate,
    share_of_gradient,
    without_power,
)
from reference_trainer.kernels.on_cuda import device_function, device_helper, gpu, on_cuda, threads_for

_MOST_BLOCKS = 4096  # so that what each thread computes of the step alone is shared by many parameters

STEP, RATE, BETA1, BETA2, EPS, WEIGHT_DECAY, WARMUP, TOTAL, LEAST_SHARE, LARGEST_NORM, LAST_RATE, NORM = range(12)
"""Indices into step_state. The kernel writes STEP, LAST_RATE and NORM, its user the others."""

_ONE = np.float32(1)


def host(command):
    """Update (params, m, v) by AdamW from grads * min(1, LARGEST_NORM / (norm + 1e-6)); grads do not change.

    The first P_decay parameters decay by (1 - rate * WEIGHT_DECAY) before. Norm and learning rate are written to
    step_state. A norm that is NaN makes all parameters NaN, as in torch.

    Arguments: params (P,), grads (P,), m (P,), v (P,), norm (1,), step_state (12,), P, P_decay.
    """
    size, decayed = number(command, 6), number(command, 7)
    params, grads = vector(command, 0, size), vector(command, 1, size)
    m, v = vector(command, 2, size), vector(command, 3, size)
    norm, state = vector(command, 4, 1)[0], vector(command, 5, 12)
    step = state[STEP] + _ONE
    rate = scheduled_rate(step, state[RATE], state[WARMUP], state[TOTAL], state[LEAST_SHARE])
    state[STEP] = step
    state[LAST_RATE] = rate
    state[NORM] = norm
    clip = clip_share(norm, state[LARGEST_NORM])
    moved = rate / one_minus_power(state[BETA1], step)
    spread = _ONE / math.sqrt(one_minus_power(state[BETA2], step))
    beta1, beta2, eps = _ONE - state[BETA1], _ONE - state[BETA2], state[EPS]
    for part in range(2):
        begin, end = (decayed, size) if part else (0, decayed)
        decay = _ONE if part else _ONE - rate * state[WEIGHT_DECAY]
        p, g, m1, m2 = params[begin:end], grads[begin:end], m[begin:end], v[begin:end]
        for i in range(len(p)):
            p[i], m1[i], m2[i] = adam_step(p[i], clip * g[i], m1[i], m2[i], beta1, beta2, eps, moved, decay, spread)


rate_at = device_helper(learning_rate)
share_of = device_function(share_of_gradient)
one_minus = device_function(without_power)
updated = device_function(adam_update)


@on_cuda("void(float32[::1], float32[::1])")
def open_step(state, norm):
    """Count the step and set its rate by one thread, before all others read them."""
    step = state[STEP] + np.float32(1)
    state[STEP] = step
    state[LAST_RATE] = rate_at(step, state[RATE], state[WARMUP], state[TOTAL], state[LEAST_SHARE])
    state[NORM] = norm[0]


@on_cuda("void(float32[::1], float32[::1], float32[::1], float32[::1], float32[::1], int64, int64)")
def update(params, grads, m, v, state, size, decayed):
    """Update the parameters, each thread at a stride of the grid: 16 bytes are read and 12 written for each."""
    step, rate = state[STEP], state[LAST_RATE]
    clip = share_of(state[NORM], state[LARGEST_NORM])
    moved = rate / one_minus(state[BETA1], step)
    spread = np.float32(1) / math.sqrt(one_minus(state[BETA2], step))
    decay = np.float32(1) - rate * state[WEIGHT_DECAY]
    beta1, beta2, eps = np.float32(1) - state[BETA1], np.float32(1) - state[BETA2], state[EPS]
    i, threads, end, begin_undecayed = uint32(gpu.grid(1)), uint32(gpu.gridsize(1)), uint32(size), uint32(decayed)
    while i < end:
        retained = decay if i < begin_undecayed else np.float32(1)
        params[i], m[i], v[i] = updated(
            params[i], clip * grads[i], m[i], v[i], beta1, beta2, eps, moved, retained, spread
        )
        i = uint32(i + threads)


def cuda(device, params, grads, m, v, norm, step_state, size, decayed):
    device.start(open_step, 1, 1, step_state, norm)
    threads = threads_for(size)
    blocks = min(_MOST_BLOCKS, -(-size // threads))
    device.start(update, blocks, threads, params, grads, m, v, step_state, size, decayed)


KERNEL = Kernel("adamw", host=host, cuda=cuda, fastmath={"contract"})
