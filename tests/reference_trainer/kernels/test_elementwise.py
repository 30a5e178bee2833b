"""The scalar mathematics against float64, as plain Python and as compiled for the host device."""

from __future__ import annotations

import numpy as np
import pytest

from reference_trainer.jit import njit
from reference_trainer.kernels import elementwise

_exp = elementwise.on_host(elementwise.exp)


@njit(fastmath={"contract"})
def exp_of_all(x, out):  # type: ignore[no-untyped-def]
    for index in range(len(x)):
        out[index] = _exp(x[index])


@njit(fastmath={"contract"})
def step_of_all(h, gate, value, out):  # type: ignore[no-untyped-def]
    for index in range(len(h)):
        out[index] = elementwise.leaky_step(h[index], gate[index], value[index])


def worst(found: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    """Largest relative error of exp, and where."""
    expected = np.exp(x.astype(np.float64))
    error = np.abs(found - expected) / expected
    return float(error.max()), float(x[error.argmax()])


def test_exp_compiled() -> None:
    """Relative error below 2e-7 from -87 to 87, which is 1.7 units in the last place of fp32."""
    x = np.linspace(-87, 87, 1_000_001).astype(np.float32)
    out = np.empty_like(x)
    exp_of_all(x, out)
    error, where = worst(out, x)
    assert error < 2e-7, f"exp({where}) is off by {error}"


def test_exp_as_python() -> None:
    x = np.linspace(-87, 87, 2_001).astype(np.float32)
    error, where = worst(np.array([elementwise.exp(value) for value in x]), x)
    assert error < 2e-7, f"exp({where}) is off by {error}"


@pytest.mark.parametrize("x", [-1e30, -1000.0, -87.5, 87.5, 1000.0, 1e30])
def test_exp_is_clipped(x: float) -> None:
    clipped = elementwise.exp(np.float32(np.clip(x, -87, 87)))
    assert elementwise.exp(np.float32(x)) == clipped
    assert np.isfinite(clipped)
    assert clipped > 0


def test_leaky_step() -> None:
    random = np.random.default_rng(0)
    h, gate, value = (random.standard_normal((3, 10_000)) * [[1], [20], [1]]).astype(np.float32)
    gate[:6] = [-1e9, -100, 0, 100, 1e9, 88]
    found = np.empty_like(h)
    step_of_all(h, gate, value, found)
    keep = 1 / (1 + np.exp(-np.clip(gate.astype(np.float64), -500, 500)))
    expected = keep * h + (1 - keep) * value
    error = np.abs(found - expected)
    assert error.max() < 1e-6, f"gate {gate[error.argmax()]}: off by {error.max()}"


def test_quarter_sine() -> None:
    """Within two units in the last place of 1 over the whole range, 0 and 1 at its ends."""
    x = np.linspace(0, 1, 20_001).astype(np.float32)
    found = np.array([elementwise.quarter_sine(value) for value in x])
    error = np.abs(found - np.sin(np.pi / 2 * x.astype(np.float64)))
    assert found.dtype == np.float32
    assert error.max() < 2.4e-7, f"sin(pi/2 {x[error.argmax()]}) is off by {error.max()}"
    assert (found[0], found[-1]) == (0, pytest.approx(1, abs=2.4e-7))


@pytest.mark.parametrize("beta", [0.0, 0.9, 0.999, 0.9999])
def test_without_power(beta: float) -> None:
    """1 - beta^step keeps its digits in fp32, where 1 - pow() would have lost four of them in the first steps."""
    single = np.float32(beta)
    for step in (1, 2, 3, 10, 1000, 100_000):
        found = elementwise.one_minus_power(single, np.float32(step))
        assert found == pytest.approx(1 - float(single) ** step, rel=3e-7), f"step {step}"
