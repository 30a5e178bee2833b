"""Uniform and normal numbers in fp32 from 23 random bits each, with fp32 rounding error.

u = (bits + 1/2) 2^-23 is exact in fp32 and neither 0 nor 1. Two of them make two normals: sqrt(-2 ln u) times the
cosine and the sine of 2 pi v (Box and Muller, A Note on the Generation of Random Normal Deviates, 1958); no value
exceeds ±5.8.
"""

from __future__ import annotations

import math

import numpy as np

from reference_trainer.kernels.elementwise import on_host, quarter_sine

_HALF, _ONE, _TWO = np.float32(0.5), np.float32(1), np.float32(2)
_STEP = np.float32(2.0**-23)
_ROOT_BITS = np.int32(0x3F3504F3)  # sqrt(1/2) in fp32
_FRACTION, _FRACTION_BITS = np.int32(0x7FFFFF), np.int32(23)
# ln 2 in two parts, the first exact in 9 bits, and the polynomial of ln(1 + f) over sqrt(1/2) <= 1 + f < sqrt(2)
# (Moshier, Cephes logf). Plain arithmetic, so that loops over it become vector code.
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_L0, _L1, _L2 = np.float32(7.0376836292e-2), np.float32(-1.1514610310e-1), np.float32(1.1676998740e-1)
_L3, _L4, _L5 = np.float32(-1.2420140846e-1), np.float32(1.4249322787e-1), np.float32(-1.6668057665e-1)
_L6, _L7, _L8 = np.float32(2.0000714765e-1), np.float32(-2.4999993993e-1), np.float32(3.3333331174e-1)


def fraction(bits):
    """23 bits, an int32, as a number of (0, 1)."""
    return (np.float32(bits) + _HALF) * _STEP


def log(x):
    """ln(x) of a normal fp32 above 0; relative error below 2e-7."""
    shifted = np.int32(np.float32(x).view(np.int32) - _ROOT_BITS)
    e = np.float32(shifted >> _FRACTION_BITS)
    f = np.int32((shifted & _FRACTION) + _ROOT_BITS).view(np.float32) - _ONE
    z = f * f
    p = _L0
    p = p * f + _L1
    p = p * f + _L2
    p = p * f + _L3
    p = p * f + _L4
    p = p * f + _L5
    p = p * f + _L6
    p = p * f + _L7
    p = p * f + _L8
    return f + (p * f * z + e * _LN2_LOW - _HALF * z) + e * _LN2_HIGH


def box_muller(compiled):
    """pair(u, v): two normals from two numbers of (0, 1), compiled by `compiled`."""
    logarithm, sine = compiled(log), compiled(quarter_sine)

    @compiled
    def pair(u, v):
        radius = math.sqrt(-_TWO * logarithm(u))
        revolution = _TWO * v - _ONE  # exact; cos(2 pi v) = -cos(pi revolution), and so the sine
        distance = abs(revolution)
        sine_part = sine(_TWO * min(distance, _ONE - distance))
        if revolution > 0:
            sine_part = -sine_part
        return -radius * sine(_ONE - _TWO * distance), radius * sine_part

    return pair


fraction_on_host = on_host(fraction)
pair_on_host = box_muller(on_host)
