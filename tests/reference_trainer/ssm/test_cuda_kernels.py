"""The CUDA kernels without a GPU: compiled to PTX for what they are meant for, and run in Numba's simulator."""

from __future__ import annotations

import importlib.util
import re

import pytest

from reference_trainer.kernels.on_cuda import CudaFunction
from reference_trainer.ssm import kernels
from tests.reference_trainer.kernels.simulated import errors_of
from tests.reference_trainer.kernels.test_ptx import compiled, cuda_functions, each_architecture, missing
from tests.reference_trainer.ssm.simulate import CHECKS

FUNCTIONS = sorted(cuda_functions(kernels), key=lambda function: function.body.__name__)


def test_all_kernels_are_found() -> None:
    names = [function.body.__name__ for function in FUNCTIONS]
    assert names == ["fill_normals", "fill_students", "response_block", "response_gradients"]


@each_architecture
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.body.__name__)
def test_compiles(function: CudaFunction, architecture: tuple[int, int]) -> None:
    if reason := missing():
        pytest.skip(reason)
    text = compiled(function, architecture)
    assert f".target sm_{architecture[0]}{architecture[1]}" in text
    assert ".entry" in text
    doubles = re.findall(r".*\.f64.*", text)  # a GPU does fp64 at half the rate of fp32 or less
    assert not doubles, f"fp64 in {function.body.__name__}: {doubles[:3]}"
    assert ".local" not in text, "an array that should be in registers is in memory"


@pytest.fixture(scope="module")
def errors() -> dict[str, str]:
    """The error of every check in the simulator; empty: it passed."""
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("numba-cuda is not installed")
    return errors_of("tests.reference_trainer.ssm.simulate")


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_in_the_simulator(errors: dict[str, str], name: str) -> None:
    assert name in errors, f"not run; these were: {', '.join(errors)}"
    assert not errors[name], errors[name]
