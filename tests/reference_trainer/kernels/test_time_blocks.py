"""A chunk is cut into blocks of time."""

from __future__ import annotations

import pytest

from reference_trainer.kernels import time_blocks
from reference_trainer.kernels.time_blocks import SERIAL_WIDTH, SHORTEST, THREADS, TILE


@pytest.mark.parametrize("tokens", [1, 31, 63, 64, 65, 1000, 3000, 100_003])
@pytest.mark.parametrize("width", [1, 32, 100, 4096, SERIAL_WIDTH - 1, SERIAL_WIDTH, 20_000])
def test_blocks_cover_the_chunk(tokens: int, width: int) -> None:
    """Blocks cover the chunk, none is empty, and there are enough threads unless blocks would be too short."""
    blocks, length = time_blocks.time_blocks(tokens, width)
    assert (blocks - 1) * length < tokens <= blocks * length
    if blocks == 1:
        assert length == tokens
        assert width >= SERIAL_WIDTH or tokens < 2 * SHORTEST or blocks * width >= THREADS
        return
    assert length % TILE == 0
    assert length >= SHORTEST
    assert width < SERIAL_WIDTH
    assert (blocks - 1) * width < THREADS, "more threads than were aimed at"


def test_known_cuts() -> None:
    assert time_blocks.time_blocks(3000, 4096) == (8, 384)
    assert time_blocks.time_blocks(3000, 256) == (63, 48)
    assert time_blocks.time_blocks(3000, SERIAL_WIDTH) == (1, 3000)
    assert time_blocks.time_blocks(63, 32) == (1, 63)
