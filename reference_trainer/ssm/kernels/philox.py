"""Random numbers that are a function of their position: Philox4x64-10.

A block of four words is ten rounds of multiplication over (counter, key), with no state (Salmon et al., Parallel Random
Numbers: As Easy as 1, 2, 3, SC 2011), so any part of a stream can be made anywhere, in any order, with the same bits.
The words are those of numpy.random.Philox, which counts up before its first block: its block n has counter n + 1.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from reference_trainer.jit import njit

ROUNDS = 10
# Multipliers, and what is added to the key from round to round: table 2 of the paper, and the golden ratio and
# sqrt(3) - 1 as fractions of 2^64.
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_BUMP_0, _BUMP_1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_HALF, _LOW_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)
_DROPPED = np.uint64(41)  # of 64 bits: 23 are left, so that fp32 holds them and a half


@intrinsic
def _wide_product(typingctx, a, b):
    """(high, low) 64 bits of a product: one instruction of the processor."""

    def codegen(context, builder, signature, args):
        wide, word = ir.IntType(128), ir.IntType(64)
        product = builder.mul(*(builder.zext(value, wide) for value in args))
        halves = builder.trunc(builder.lshr(product, wide(64)), word), builder.trunc(product, word)
        return context.make_tuple(builder, signature.return_type, halves)

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), codegen


def native(compiled):
    """product(a, b): (high, low) 64 bits by the host's processor."""
    return _wide_product


def of_halves(compiled):
    """product(a, b): (high, low) 64 bits from products of 32 bits, as a GPU computes them."""

    @compiled
    def product(a, b):
        a_low, a_high = a & _LOW_HALF, a >> _HALF
        b_low, b_high = b & _LOW_HALF, b >> _HALF
        middle = a_high * b_low + ((a_low * b_low) >> _HALF)
        carry = a_low * b_high + (middle & _LOW_HALF)
        return a_high * b_high + (middle >> _HALF) + (carry >> _HALF), a * b

    return product


def philox(compiled, products=of_halves):
    """block(number, seed, word): block `number`, from 0, of the stream with key (seed, word); four of 64 bits."""
    product = products(compiled)

    @compiled
    def block(number, seed, word):
        x0, x1, x2, x3 = number + _ONE, _ZERO, _ZERO, _ZERO
        for _ in range(ROUNDS):
            high_0, low_0 = product(_MULTIPLIER_0, x0)
            high_1, low_1 = product(_MULTIPLIER_1, x2)
            x0, x1, x2, x3 = high_1 ^ x1 ^ seed, low_1, high_0 ^ x3 ^ word, low_0
            seed = seed + _BUMP_0
            word = word + _BUMP_1
        return x0, x1, x2, x3

    return block


def leading_bits(word):
    """The 23 bits of a word from which a number is made."""
    return np.int32(word >> _DROPPED)


block_on_host = philox(njit, native)
