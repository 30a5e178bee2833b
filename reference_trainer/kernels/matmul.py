"""Multiplies matrices: on the host device by the BLAS that SciPy ships (through Numba's binding), on CUDA by torch."""

from __future__ import annotations

import numpy as np
from numba import types

from reference_trainer.devices.host_queue import ARGUMENTS
from reference_trainer.jit import njit
from reference_trainer.kernels import Kernel
from reference_trainer.kernels.arguments import integers_at, number

TRANSPOSE_A, TRANSPOSE_B, ACCUMULATE = 1, 2, 4
DROPPED_BITS = {"fp32": 0, "tf32": 13, "bf16": 16}
"""By dtype of the products: how many of the 23 mantissa bits their inputs lose. Sums are in fp32."""

# kind, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc: pointers as addresses
_gemm = types.ExternalFunction("numba_xxgemm", types.intc(*[types.char] * 3, *[types.intp] * 3, *[types.intp] * 8))
_ONE = 0x3F800000
"""1.0 as the bits of a float: BLAS takes the addresses of its factors."""
_ALPHA, _BETA = ARGUMENTS + 8 * 7, ARGUMENTS + 8 * 8
_EXPONENT = 0x7F800000  # all ones: infinite or NaN
_FLOAT, _N, _T = ord("s"), ord("n"), ord("t")


@njit("void(int64, int64)", cache=True)
def _multiply_numbers(one, numbers):
    _gemm(_FLOAT, _N, _N, 1, 1, 1, one, numbers, 1, numbers, 1, one, numbers, 1)


def load_blas() -> None:
    """Load the function of BLAS that products call. Numba looks it up at its first call, for which it takes the GIL:
    the worker of the host device would wait for a program that holds the GIL and waits for that worker."""
    numbers = np.array([_ONE, 0])
    _multiply_numbers(numbers.ctypes.data, numbers.ctypes.data + 8)


@njit(inline="always")
def multiply(command, a, b):
    """Call BLAS for the command, with the matrices at the addresses a and b."""
    rows, inner, columns, flags = number(command, 3), number(command, 4), number(command, 5), number(command, 6)
    transpose_a, transpose_b = flags & TRANSPOSE_A, flags & TRANSPOSE_B
    # BLAS stores matrices column by column: it is called for the transposed product
    _gemm(
        _FLOAT,
        _T if transpose_b else _N,
        _T if transpose_a else _N,
        columns,
        rows,
        inner,
        command + _ALPHA,
        b,
        inner if transpose_b else columns,
        a,
        rows if transpose_a else inner,
        command + _BETA,
        number(command, 0),
        columns,
    )


@njit
def round_mantissas(target, source, length, dropped):
    """Round fp32 numbers to the nearest, ties to even, so that their last `dropped` bits are 0; NaN stays NaN."""
    bits, rounded = integers_at(source, length), integers_at(target, length)
    below_half = (1 << (dropped - 1)) - 1
    retained = -(1 << dropped)
    for i in range(length):
        pattern = np.int64(bits[i])
        nearest = (pattern + below_half + ((pattern >> dropped) & 1)) & retained
        rounded[i] = np.int32(nearest if (pattern & _EXPONENT) != _EXPONENT else pattern)


def host(command):
    """Compute out (M, N) (+)= op(a) @ op(b), op(a) (M, K), op(b) (K, N), all row by row.

    Arguments: out, a, b, M, K, N, flags, 1.0, 1.0 or 0.0.
    """
    multiply(command, number(command, 1), number(command, 2))


def rounded_host(command):
    """Compute the same of rounded inputs.

    Further arguments: memory for the rounded a and b, how many numbers they have, how many mantissa bits they lose.
    """
    a, b, dropped = number(command, 9), number(command, 10), number(command, 13)
    round_mantissas(a, number(command, 1), number(command, 11), dropped)
    round_mantissas(b, number(command, 2), number(command, 12), dropped)
    multiply(command, a, b)


def host_arguments(flags: int) -> tuple[int, int, int]:
    """Arguments after the sizes: flags, and BLAS's two factors."""
    return flags, _ONE, _ONE if flags & ACCUMULATE else 0


def sizes(a_shape: tuple[int, ...], b_shape: tuple[int, ...], rows: int, flags: int) -> tuple[int, int, int]:
    """M, K, N of a product whose token dimension is `rows` long."""
    if flags & TRANSPOSE_A:
        return a_shape[1], rows, b_shape[1]
    inner, columns = reversed(b_shape) if flags & TRANSPOSE_B else b_shape
    return rows, inner, columns


def cuda(device, out, a, b, rows, flags):
    device.matrix_product(out, a, b, rows, flags)


KERNEL = Kernel("matmul", host=host, cuda=cuda)
ROUNDED = Kernel("matmul", host=rounded_host, cuda=cuda)
"""For the host device, which does by it what CUDA's tensor cores do."""
