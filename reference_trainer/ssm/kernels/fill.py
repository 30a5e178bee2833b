"""Fills memory with random numbers by their position: rows of normals, and the parameters of students.

Element i of a row is made from word i of its stream, a normal from words i and i ^ 1. A student of d channels takes
three rows of whole blocks, one each for a, b and c: student n of a stream begins at block 3 n ceil(d / 4).
"""

from __future__ import annotations

import numpy as np

from reference_trainer.jit import njit
from reference_trainer.kernels.on_cuda import device_function, device_helper, gpu, on_cuda
from reference_trainer.ssm.kernels.box_muller import box_muller, fraction, fraction_on_host, pair_on_host
from reference_trainer.ssm.kernels.philox import block_on_host, leading_bits, philox

WORDS = 4
"""Words of a block."""
TILE = 1024
"""Words that are drawn before they are converted to numbers: that loop becomes vector code, and 4 KiB stay cached."""
THREADS = 128
_bits_on_host = njit(leading_bits)


@njit
def _draw_bits(bits, seed, word, first, blocks):
    for n in range(blocks):
        w0, w1, w2, w3 = block_on_host(np.uint64(first + n), seed, word)
        bits[WORDS * n] = _bits_on_host(w0)
        bits[WORDS * n + 1] = _bits_on_host(w1)
        bits[WORDS * n + 2] = _bits_on_host(w2)
        bits[WORDS * n + 3] = _bits_on_host(w3)


@njit(fastmath={"contract"})
def _uniforms(row, bits, low, width):
    for i in range(len(row)):
        row[i] = low + width * fraction_on_host(bits[i])


@njit(fastmath={"contract"})
def _normals(row, bits, scale):
    for n in range(len(row) >> 1):
        even, odd = pair_on_host(fraction_on_host(bits[2 * n]), fraction_on_host(bits[2 * n + 1]))
        row[2 * n] = scale * even
        row[2 * n + 1] = scale * odd
    if len(row) & 1:
        last = len(row) - 1
        even, odd = pair_on_host(fraction_on_host(bits[last]), fraction_on_host(bits[last + 1]))
        row[last] = scale * even


@njit
def _fill_uniforms(row, bits, key, first, low, width):
    for begin in range(0, len(row), TILE):
        part = row[begin : begin + TILE]
        _draw_bits(bits, key[0], key[1], first + (begin >> 2), (len(part) + 3) >> 2)
        _uniforms(part, bits, low, width)


@njit
def _fill_normals(row, bits, key, first, scale):
    for begin in range(0, len(row), TILE):
        part = row[begin : begin + TILE]
        _draw_bits(bits, key[0], key[1], first + (begin >> 2), (len(part) + 3) >> 2)
        _normals(part, bits, scale)


@njit(cache=True, nogil=True)
def host_normals(out, keys):
    """Fill out (R, n) float32: row r with the beginning of the stream of keys[r]; keys (R, 2) uint64."""
    bits = np.empty(TILE, np.int32)
    for row in range(len(out)):
        _fill_normals(out[row], bits, keys[row], 0, np.float32(1))


@njit(cache=True, nogil=True)
def host_students(a, b, c, keys, begin, count, low, width, b_scale, c_scale):
    """a, b, c (J * count, d) float32: `count` students from number `begin` on of the stream of each of J keys.

    a is uniform over [low, low + width), b and c are normal times their scales; all four are float32.
    """
    bits = np.empty(TILE, np.int32)
    dim = a.shape[1]
    blocks = (dim + WORDS - 1) >> 2
    row_words = WORDS * blocks
    for row in range(len(a)):
        job = row // count
        key = keys[job]
        first = (begin + row - job * count) * 3 * blocks
        if 3 * row_words <= TILE:  # all three at once
            _draw_bits(bits, key[0], key[1], first, 3 * blocks)
            _uniforms(a[row], bits, low, width)
            _normals(b[row], bits[row_words:], b_scale)
            _normals(c[row], bits[2 * row_words :], c_scale)
        else:
            _fill_uniforms(a[row], bits, key, first, low, width)
            _fill_normals(b[row], bits, key, first + blocks, b_scale)
            _fill_normals(c[row], bits, key, first + 2 * blocks, c_scale)


def store_block(out, row, number, n0, n1, n2, n3):
    """Store block `number` of a row as far as the row goes."""
    column = WORDS * number
    columns = out.shape[1]
    out[row, column] = n0
    if column + 1 < columns:
        out[row, column + 1] = n1
    if column + 2 < columns:
        out[row, column + 2] = n2
    if column + 3 < columns:
        out[row, column + 3] = n3


block_of = device_helper(philox)
pair = device_helper(box_muller)
uniform = device_function(fraction)
bits_of = device_function(leading_bits)
store = device_function(store_block)


@on_cuda("void(float32[:, ::1], int64[:, ::1], int64, int64)")
def fill_normals(out, keys, rows, blocks):
    """Do the work of host_normals with one thread per block of words; the keys have the bits of unsigned numbers."""
    thread = gpu.grid(1)
    row = thread // blocks
    if row >= rows:
        return
    number = thread - row * blocks
    w0, w1, w2, w3 = block_of(np.uint64(number), np.uint64(keys[row, 0]), np.uint64(keys[row, 1]))
    n0, n1 = pair(uniform(bits_of(w0)), uniform(bits_of(w1)))
    n2, n3 = pair(uniform(bits_of(w2)), uniform(bits_of(w3)))
    store(out, row, number, n0, n1, n2, n3)


@on_cuda(
    "void(float32[:, ::1], float32[:, ::1], float32[:, ::1], int64[:, ::1],"
    " int64, int64, int64, int64, float32, float32, float32, float32)"
)
def fill_students(a, b, c, keys, rows, blocks, begin, count, low, width, b_scale, c_scale):
    """Do the work of host_students with one thread per block of words."""
    thread = gpu.grid(1)
    row = thread // (3 * blocks)
    if row >= rows:
        return
    offset = thread - row * 3 * blocks  # first those of a, then of b, then of c
    job = row // count
    number = (begin + row - job * count) * 3 * blocks + offset
    w0, w1, w2, w3 = block_of(np.uint64(number), np.uint64(keys[job, 0]), np.uint64(keys[job, 1]))
    u0, u1, u2, u3 = uniform(bits_of(w0)), uniform(bits_of(w1)), uniform(bits_of(w2)), uniform(bits_of(w3))
    if offset < blocks:
        store(a, row, offset, low + width * u0, low + width * u1, low + width * u2, low + width * u3)
        return
    n0, n1 = pair(u0, u1)
    n2, n3 = pair(u2, u3)
    if offset < 2 * blocks:
        store(b, row, offset - blocks, b_scale * n0, b_scale * n1, b_scale * n2, b_scale * n3)
    else:
        store(c, row, offset - 2 * blocks, c_scale * n0, c_scale * n1, c_scale * n2, c_scale * n3)
