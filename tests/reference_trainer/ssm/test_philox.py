"""Philox4x64-10 against NumPy's own, as plain Python and as compiled for the host; normals against fp64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from reference_trainer.jit import njit
from reference_trainer.ssm import draws
from reference_trainer.ssm.kernels import box_muller, philox

KEYS = [(0, 0), (7, 3 | 2 << 8 | 64 << 32), (2**63 - 1, 2**64 - 1)]
FIRST = [0, 5, 2**40]
Block = Callable[[np.uint64, np.uint64, np.uint64], tuple[np.uint64, ...]]


def as_python(function: Callable) -> Callable:
    return function


BLOCKS: dict[str, Block] = {
    "plain Python": philox.philox(as_python),
    "compiled": philox.block_on_host,
    "compiled, from halves": philox.philox(njit),
}


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("key", KEYS)
def test_words_are_numpys(block: Block, first: int, key: tuple[int, int]) -> None:
    expected = np.random.Philox(counter=first, key=np.array(key, np.uint64)).random_raw(12)
    result = [word for n in range(3) for word in block(np.uint64(first + n), *map(np.uint64, key))]
    assert [int(word) for word in result] == expected.tolist()


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize(
    "product", [philox.of_halves(as_python), philox.of_halves(njit)], ids=["plain Python", "compiled"]
)
def test_a_product_of_halves(product: Callable) -> None:
    """Against Python's integers, carries and all."""
    random = np.random.default_rng(1)
    some = [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1, *random.integers(0, 2**64, 5, np.uint64).tolist()]
    for a in some:
        for b in some:
            high, low = product(np.uint64(a), np.uint64(b))
            assert (int(high), int(low)) == divmod(a * b, 2**64), (a, b)


def test_log() -> None:
    """Relative error below 2e-7 for all that a uniform number can be, its ends and what is near 1 among them."""
    bits = np.unique(np.concatenate([np.arange(200), 2**23 - 1 - np.arange(200), np.arange(0, 2**23, 997)]))
    u = (bits + 0.5) * 2.0**-23
    result = np.array([box_muller.log(np.float32(value)) for value in u], np.float64)
    error = np.abs(result - np.log(u)) / np.abs(np.log(u))
    assert error.max() < 2e-7, f"ln {u[error.argmax()]} is off by {error.max()}"


@pytest.mark.parametrize("pair", [box_muller.box_muller(as_python), box_muller.box_muller(njit)], ids=["plain", "njit"])
def test_pairs_of_normals(pair: Callable) -> None:
    """Within 2e-6 of fp64: some roundings of numbers of up to 5.8; in all quarters of the circle."""
    values = np.random.default_rng(2).integers(0, 2**64, 4000, np.uint64)
    values[:8] = [0, 0, 2**64 - 1, 2**64 - 1, 0, 2**63, 2**63, 2**62]
    u = draws.uniforms(values).astype(np.float32)
    result = np.array([pair(*two) for two in u.reshape(-1, 2)]).ravel()
    expected = draws.normals(values)
    assert np.abs(result - expected).max() < 2e-6
    assert np.array_equal(np.signbit(result), np.signbit(expected))
