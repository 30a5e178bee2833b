"""Cuts a recurrence over time into blocks that a GPU computes in parallel.

Per channel h_t = a_t h_{t-1} + u_t is serial in time, so that one thread a channel is all that can work: 256 channels
are 8 warps for the 132 multiprocessors of an H200. But a block of time maps the state before it to the state behind it
by h -> A h + B, where A is the product of its a_t and B what it ends with when begun with 0, and neither needs another
block (Blelloch, Prefix Sums and Their Applications, 1990):

    first launch     all blocks at once: (A, B) of each; the first one begins with the carried state, so its B is exact
    second launch    all blocks at once: the state before block n is folded from (A, B) of the blocks before it, and
                     then the block is done as if it were alone

The gradient is the same with time reversed. What it costs: the first launch reads what a_t and u_t are made of once
more, so a forward pass moves 24 bytes an element of (T, D) instead of 16 (one that keeps 28 instead of 20, backward 32
instead of 24), and does its exponentials twice. The fold reads 2 numbers for each block before it, which the
second-level cache holds: blocks times channels are about THREADS.
"""

from __future__ import annotations

import numpy as np
from numpy import uint32

from reference_trainer.kernels.on_cuda import device_function, threads_for

TILE = 16
"""Time steps whose loads are in flight together; up to 4 registers each."""
THREADS = 1 << 15
"""Channels times blocks to aim at. 16 loads of each of 3 numbers by 2^15 threads are 6 MB in flight; an H200 needs some
3 MB (4.8 TB/s of its data sheet times 0.7 us of latency). Not measured on a GPU."""
SHORTEST = 32
"""Time steps of a block at least: the fold and a launch should not cost more than the block."""
SERIAL_WIDTH = 12_288
"""Channels from which on a thread for each is enough: 2/3 of those 3 MB are then in flight, and a serial scan moves 2/3
of the bytes. Where the two break even was not measured on a GPU; tests/benchmarks/bench_gpu.py times both."""
GROUP = 64
"""Largest number of channels, and of threads, of a CUDA block."""
_WARP = 32  # the same of a serial scan: one warp, so that the channels spread over all multiprocessors


def time_blocks(tokens: int, width: int) -> tuple[int, int]:
    """The number of blocks of time of a chunk (1: serial), and their length; the last may be shorter."""
    wanted = 1 if width >= SERIAL_WIDTH else min(-(-THREADS // width), tokens // SHORTEST)
    if wanted <= 1:
        return 1, tokens
    length = -(-tokens // (wanted * TILE)) * TILE
    return -(-tokens // length), length


def launch_sizes(tokens: int, width: int) -> tuple[int, int, int, int]:
    """The number of blocks of time and their length, and the CUDA blocks and their threads that compute them."""
    blocks, length = time_blocks(tokens, width)
    threads = threads_for(width, GROUP if blocks > 1 else _WARP)
    return blocks, length, blocks * -(-width // threads), threads


@device_function
def fold_before(ends, block, blocks, width, channel):
    """Compute the initial state of a block of time.

    `ends` holds B of each block (blocks, width), then A likewise, then the state (width,) before the first block, which
    B of the first block has in it.
    """
    if block == 0:
        return ends[uint32(2 * blocks * width + channel)]
    h = ends[channel]
    at, end = uint32(width + channel), uint32(block * width)
    while at < end:
        h = ends[uint32(blocks * width + at)] * h + ends[at]
        at = uint32(at + width)
    return h


@device_function
def fold_behind(ends, block, blocks, width, channel):
    """Do the same with time reversed, from 0 behind the last block."""
    carry = np.float32(0)
    at, end = uint32(blocks * width + channel), uint32((block + 1) * width + channel)
    while at > end:
        at = uint32(at - width)
        carry = ends[uint32(blocks * width + at)] * carry + ends[at]
    return carry
