"""The scalar mathematics of the model, written once for every device.

Plain Python here; `on_host` and the CUDA kernels compile the same functions. exp is a polynomial because
Numba without SVML calls the scalar libm for it, which keeps loops from being vectorised.
"""

from __future__ import annotations

import math

import numpy as np

from reference_trainer.jit import njit

_LOG2_E = np.float32(1.44269504)
# ln 2 in two parts, the first exact in 9 bits, so that x - n ln 2 loses nothing (Cody and Waite, 1980).
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(-2.12194440e-4)
# Minimax polynomial of exp(r) - 1 - r over |r| <= ln 2 / 2 (Moshier, Cephes expf); with the reduction above
# its relative error is below 2e-7 over the clipped range (tests/reference_trainer/kernels).
_C0, _C1, _C2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_C3, _C4, _C5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
_CLIP = np.float32(87.0)  # exp(-87) is the smallest normal fp32 but for rounding
_ONE = np.float32(1)
# Added and taken away again, it leaves the nearest integer of |x| < 2^22: fp32 has no fraction bits there.
# Numba has no np.floor on CUDA.
_ROUND = np.float32(1.5 * 2**23)
_ZERO = np.float32(0)
_NORM_EPS = np.float32(1e-6)
# (pi/2)^n / n! with the signs of the sine's series, n = 1, 3, ... 11; the term after them is below 6e-8.
_S0, _S1, _S2 = np.float32(1.5707963268), np.float32(-6.4596409751e-1), np.float32(7.9692626246e-2)
_S3, _S4, _S5 = np.float32(-4.6817541353e-3), np.float32(1.6044118479e-4), np.float32(-3.5988432352e-6)


def exp(x):
    """exp(x) in fp32 for x clipped to [-87, 87]; relative error below 2e-7."""
    x = min(max(x, -_CLIP), _CLIP)
    n = (x * _LOG2_E + _ROUND) - _ROUND
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    p = _C0
    p = p * r + _C1
    p = p * r + _C2
    p = p * r + _C3
    p = p * r + _C4
    p = p * r + _C5
    p = p * r * r + r + _ONE
    return p * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


def linear_step(h, keep, value):
    """The next state of a linear recurrence: keep h + value."""
    return keep * h + value


def leaky_integrator(compiled):
    """The recurrence's scalar step, compiled by `compiled` (a decorator of the device).

    step(h, gate, value) = a h + (1 - a) value, with a = sigmoid(gate): a leaky integrator whose leak 1 - a
    depends on the input. All fp32.
    """
    keep_of, advance = retention(compiled), compiled(linear_step)

    @compiled
    def step(h, gate, value):
        keep = keep_of(gate)
        return advance(h, keep, (_ONE - keep) * value)

    return step


def retention(compiled):
    """The share of its state that a layer keeps, compiled by `compiled`: keep_of(gate) = sigmoid(gate)."""
    exponential = compiled(exp)

    @compiled
    def keep_of(gate):
        return _ONE / (_ONE + exponential(-gate))

    return keep_of


def quarter_sine(x):
    """sin(pi x / 2) for x in [0, 1], by Taylor's series; error below 2.4e-7.

    CUDA's own sine would keep a table in local memory for arguments that never come here.
    """
    y = x * x
    p = _S5
    p = p * y + _S4
    p = p * y + _S3
    p = p * y + _S2
    p = p * y + _S1
    return (p * y + _S0) * x


def learning_rate(compiled):
    """The learning rate of a step, compiled by `compiled`: rate_at(step, highest, warmup, total, least).

    Steps count from 1. Over `warmup` of them the rate rises linearly to `highest`; from there to step `total` it
    falls along half a cosine to `least` of it, where it stays.
    """
    sine = compiled(quarter_sine)

    @compiled
    def rate_at(step, highest, warmup, total, lowest):
        if step < warmup:
            return highest * step / warmup
        remaining = max(total - step, _ZERO) / max(total - warmup, _ONE)
        wave = sine(min(remaining, _ONE))  # sin(pi/2 left)^2 = (1 + cos(pi (1 - left))) / 2
        return highest * (lowest + (_ONE - lowest) * wave * wave)

    return rate_at


def share_of_gradient(norm, largest):
    """The factor that clips a gradient of that norm, as torch.nn.utils.clip_grad_norm_ has it; NaN for NaN."""
    share = largest / (norm + _NORM_EPS)
    if share > _ONE:
        return _ONE
    return share


def without_power(beta, step):
    """1 - beta^step, in a form that keeps all digits where beta^step is near 1."""
    return -math.expm1(step * math.log(beta))


def adam_update(p, g, m, v, one_minus_beta1, one_minus_beta2, eps, rate, decay, spread):
    """AdamW's new (p, m, v) of a parameter p with gradient g (Loshchilov and Hutter, 2019, algorithm 2).

    :param rate: learning rate / (1 - beta1^step).
    :param decay: 1 - learning rate * weight decay; 1: none.
    :param spread: 1 / sqrt(1 - beta2^step).
    """
    m = m + (g - m) * one_minus_beta1
    v = v + (g * g - v) * one_minus_beta2
    return p * decay - rate * m / (math.sqrt(v) * spread + eps), m, v


def on_host(function):
    """Compile for the host device, inlined into the kernel that calls it."""
    return njit(inline="always")(function)


exponential = on_host(exp)
advance_on_host = on_host(linear_step)
leaky_step = leaky_integrator(on_host)
keep_share = retention(on_host)
scheduled_rate = learning_rate(on_host)
adam_step = on_host(adam_update)
clip_share = on_host(share_of_gradient)
one_minus_power = on_host(without_power)
