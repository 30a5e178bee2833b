"""Every CUDA kernel in Numba's simulator against NumPy, launched by the CUDA device with its buffers on the CPU."""

from __future__ import annotations

import importlib.util

import pytest

from tests.reference_trainer.kernels import cases, checks
from tests.reference_trainer.kernels.simulated import errors_of

NAMES = [
    *map(checks.name, cases.FEW),
    *(cases.name(way, case) for way in cases.WAYS for case in way.few),
    *("forwards", "graphed chunks", "learning", "graph", "benchmarks", "empty"),
]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed")


@pytest.fixture(scope="module")
def errors() -> dict[str, str]:
    """The error of every check; empty: it passed."""
    return errors_of("tests.reference_trainer.kernels.simulate")


def test_a_smoke_test_in_the_simulator() -> None:
    """The whole takes half a minute and is slow."""
    names = (checks.name(cases.FEW[0]), "empty")
    assert errors_of("tests.reference_trainer.kernels.simulate", *names) == dict.fromkeys(names, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_in_the_simulator(errors: dict[str, str], name: str) -> None:
    assert name in errors, f"not run; these were: {', '.join(errors)}"
    assert not errors[name], errors[name]
