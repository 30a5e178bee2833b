"""Checks of the kernels of learning other than the loss, against NumPy in float64: the scan's gradient, the gradients'
norm, AdamW."""

from __future__ import annotations

import math

import numpy as np

from reference_trainer.devices.protocol import Device
from reference_trainer.kernels import adamw, grad_norm, scan, scan_backward
from tests.reference_trainer.kernels.checks import Case, close, equal, leaky, table

LAYERS, LAYER = 3, 1


def normal(device: Device, random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(device.real)


def layer_of(device: Device, random: np.random.Generator, width: int) -> tuple[np.ndarray, np.ndarray]:
    """bias, state"""
    return normal(device, random, LAYERS, 2 * width), normal(device, random, LAYERS, width)


def forward(projected: np.ndarray, bias: np.ndarray, h: np.ndarray) -> np.ndarray:
    """All states (T, D) in float64, from h (D,)."""
    states = np.empty((len(projected), len(h)))
    for t, total in enumerate(projected.astype(np.float64) + bias):
        h = states[t] = leaky(h, *np.split(total, 2))
    return states


def scan_keeps_what_it_did(device: Device, random: np.random.Generator, tokens: int, width: int) -> None:
    """Two chunks, the state carried; other layers' rows stay."""
    bias, state = layer_of(device, random, width)
    saved = normal(device, random, LAYERS, width)
    on_device = [device.upload(array) for array in (bias, state, saved)]
    carried, remaining = state.astype(np.float64), saved.astype(np.float64)
    y, hidden = (device.zeros((tokens + 1, width)) for _ in range(2))  # buffers are as long as the longest chunk
    for _ in range(2):
        x, projected = normal(device, random, tokens, width), 3 * normal(device, random, tokens, 2 * width)
        buffer = device.upload(x)
        sizes = tokens, width, LAYER, LAYERS
        device.launch(scan.KEEPING, y, buffer, device.upload(projected), *on_device, hidden, *sizes)
        remaining[LAYER] = carried[LAYER]
        states = forward(projected, bias[LAYER], carried[LAYER])
        carried[LAYER] = states[-1]
        nothing = np.zeros((1, width))
        close("y", device.download(y), np.concatenate([x + states, nothing]))
        close("hidden", device.download(hidden), np.concatenate([states, nothing]))
        equal("x", device.download(buffer), x)
    close("state", device.download(on_device[1]), carried)
    close("saved state", device.download(on_device[2]), remaining)


def scan_backward_is_the_gradient(device: Device, random: np.random.Generator, tokens: int, width: int) -> None:
    bias, state = layer_of(device, random, width)
    projected, grad = 3 * normal(device, random, tokens, 2 * width), normal(device, random, tokens, width)
    hidden = forward(projected, bias[LAYER], state[LAYER]).astype(device.real)
    dprojected, dbias = (normal(device, random, *shape) for shape in ((tokens + 1, 2 * width), (LAYERS, 2 * width)))
    buffers = [device.upload(array) for array in (dprojected, grad, projected, bias, hidden, state, dbias)]
    device.launch(scan_backward.KERNEL, *buffers, tokens, width, LAYER, LAYERS)

    gate, value = np.split(projected.astype(np.float64) + bias[LAYER], 2, axis=1)
    keep = 1 / (1 + np.exp(-gate))
    before = np.concatenate([state[LAYER : LAYER + 1], hidden[:-1]]).astype(np.float64)
    dh = grad.astype(np.float64)
    for t in range(tokens - 2, -1, -1):
        dh[t] += keep[t + 1] * dh[t + 1]
    expected, sums = dprojected.astype(np.float64), dbias.astype(np.float64)
    expected[:tokens] = np.concatenate([dh * (before - value) * keep * (1 - keep), dh * (1 - keep)], axis=1)
    sums[LAYER] = expected[:tokens].sum(axis=0)
    close("dprojected", device.download(buffers[0]), expected)
    close("dbias", device.download(buffers[6]), sums)
    equal("grad", device.download(buffers[1]), grad)


def norm_is_the_length(device: Device, random: np.random.Generator, size: int, scale: int) -> None:
    """Sum numbers around 10^(scale - 6), and none behind them."""
    grads = normal(device, random, size + 3) * device.real.type(10.0 ** (scale - 6))
    norm = device.upload(np.full(1, -1, device.real))
    device.launch(grad_norm.KERNEL, norm, device.upload(grads), size)
    expected = np.sqrt(np.sum(grads[:size].astype(np.float64) ** 2))
    close("norm", device.download(norm), np.array([expected]), smallest=0)


def step_state(device: Device, warmup: int, total: int) -> np.ndarray:
    return np.array([0, 3e-2, 0.9, 0.99, 1e-6, 0.1, warmup, total, 0.05, 2.0, -1, -1], device.real)


def rate_at(state: np.ndarray, step: int) -> float:
    """The learning rate by its definition."""
    warmup, total, smallest = state[adamw.WARMUP], state[adamw.TOTAL], state[adamw.LEAST_SHARE]
    if step < warmup:
        return state[adamw.RATE] * step / warmup
    done = min((step - warmup) / max(total - warmup, 1), 1)
    return state[adamw.RATE] * (smallest + (1 - smallest) * (1 + math.cos(math.pi * done)) / 2)


def adamw_steps(device: Device, random: np.random.Generator, size: int, decayed: int) -> None:
    """Six steps: warm-up, the cosine, its end; clipped and not."""
    state = step_state(device, warmup=2, total=5)
    exact = state.astype(np.float64)
    params, zeros = normal(device, random, size), np.zeros(size, device.real)
    p, m, v = params.astype(np.float64), np.zeros(size), np.zeros(size)
    decay = np.where(np.arange(size) < decayed, exact[adamw.WEIGHT_DECAY], 0)
    buffers = [device.upload(array) for array in (params, zeros, zeros, zeros, zeros[:1], state)]
    for step in range(1, 7):
        grads = normal(device, random, size) * device.real.type(0.1 if step % 2 else 10)
        norm = np.sqrt(np.sum(grads.astype(np.float64) ** 2, keepdims=True)).astype(device.real)
        device.upload_into(buffers[1], grads)
        device.upload_into(buffers[4], norm)
        device.launch(adamw.KERNEL, *buffers, size, decayed)
        rate, beta1, beta2 = rate_at(exact, step), exact[adamw.BETA1], exact[adamw.BETA2]
        g = grads.astype(np.float64) * min(1, exact[adamw.LARGEST_NORM] / (norm[0] + 1e-6))
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        p = p * (1 - rate * decay)
        p -= rate * (m / (1 - beta1**step)) / (np.sqrt(v / (1 - beta2**step)) + exact[adamw.EPS])
        exact[[adamw.STEP, adamw.LAST_RATE, adamw.NORM]] = step, rate, norm[0]
        result = device.download(buffers[5])
        close("step_state", result, exact)
        close("learning rate", result[adamw.LAST_RATE : adamw.NORM], np.array([rate]), smallest=0)
    for name, buffer, expected in zip(("params", "m", "v"), (buffers[0], *buffers[2:4]), (p, m, v), strict=True):
        close(name, device.download(buffer), expected, smallest=0)


def adamw_takes_no_number_for_a_number(device: Device, random: np.random.Generator, size: int, decayed: int) -> None:
    """A norm that is NaN makes all parameters NaN: it must not be taken for one that needs no clipping."""
    ones, state = np.ones(size, device.real), step_state(device, warmup=2, total=5)
    norm = np.full(1, np.nan, device.real)
    buffers = [device.upload(array) for array in (ones, ones, ones, ones, norm, state)]
    device.launch(adamw.KERNEL, *buffers, size, decayed)
    result = device.download(buffers[0])
    assert np.isnan(result).all(), result


FEW = table(
    (scan_keeps_what_it_did, (1, 1), (35, 3), (2, 40)),
    (scan_backward_is_the_gradient, (1, 1), (35, 3), (2, 40)),
    (norm_is_the_length, (1, 6), (300, 0)),
    (adamw_steps, (1, 0), (9, 4)),
    (adamw_takes_no_number_for_a_number, (3, 1)),
)
"""Small enough for the simulator."""

MANY: list[Case] = [
    *FEW,
    *((scan_keeps_what_it_did, tokens, width) for tokens in (15, 16, 17, 100) for width in (1, 2, 31, 64, 130)),
    *((scan_backward_is_the_gradient, tokens, width) for tokens in (2, 17, 100) for width in (1, 2, 31, 64, 130)),
    *((norm_is_the_length, size, scale) for size in (2, 1024, 1025, 300_000) for scale in (0, 6, 12)),
    *((adamw_steps, size, decayed) for size in (2, 33, 1000) for decayed in (0, 1, size)),
]
