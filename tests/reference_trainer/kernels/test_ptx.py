"""Every CUDA kernel is compiled to PTX, and to machine code where ptxas is found: no spills, nothing in fp64."""

from __future__ import annotations

import importlib
import pkgutil
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from reference_trainer import kernels
from reference_trainer.kernels.on_cuda import CudaFunction
from reference_trainer.ssm import kernels as ssm_kernels
from tests.fakes.programs import ROOT

ARCHITECTURES = [pytest.param((8, 0), marks=pytest.mark.slow), (9, 0)]  # A100; H100 and H200


MODULES = [
    importlib.import_module(f"{package.__name__}.{module.name}")
    for package in (kernels, ssm_kernels)
    for module in pkgutil.iter_modules(package.__path__)
]
FUNCTIONS = sorted(
    (value for module in MODULES for value in vars(module).values() if isinstance(value, CudaFunction)),
    key=lambda function: function.body.__name__,
)


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    pytest.importorskip("numba_cuda")
    from cuda.pathfinder import load_nvidia_dynamic_lib

    for library in ("nvvm", "nvrtc"):
        try:
            load_nvidia_dynamic_lib(library)
        except RuntimeError:
            pytest.skip(f"lib{library} is not found: pip install nvidia-nvvm nvidia-cuda-nvrtc")


@cache
def compiled(function: CudaFunction, architecture: tuple[int, int]) -> str:
    """The PTX of a kernel."""
    from numba import cuda
    from numba.core import sigutils
    from numba.cuda import dispatcher

    arguments, _ = sigutils.normalize_signature(function.signature)
    with pytest.MonkeyPatch.context() as patch:
        # Device functions are compiled for the GPU of this machine; there is none.
        patch.setattr(dispatcher, "get_current_device", lambda: SimpleNamespace(compute_capability=architecture))
        text, _ = cuda.compile_ptx(function.bind(), arguments, cc=architecture)
    return text


def test_all_kernels_are_found() -> None:
    names = {function.body.__name__ for function in FUNCTIONS}
    assert {"scan_block", "score_rows", "step_in_one_block", "leak", "decode_in_one_block", "choose"} <= names
    assert {"fill_normals", "fill_students", "response_block", "response_gradients"} <= names
    launched = {module.__name__ for module in MODULES if hasattr(module, "KERNEL")}
    without = launched - {function.body.__module__ for function in FUNCTIONS}
    assert {name.rpartition(".")[2] for name in without} <= {"matmul", "scan_learn"}, "these two launch others"


def test_the_table_of_kernels_is_complete() -> None:
    """docs/kernels.md is written by tests/benchmarks/kernel_table.py."""
    listed = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/kernels.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {function.body.__name__ for function in FUNCTIONS} - {"nothing"}, "write it again"


each_kernel = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.body.__name__)
each_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda pair: f"sm_{pair[0]}{pair[1]}")


@each_architecture
@each_kernel
def test_compiles(function: CudaFunction, architecture: tuple[int, int]) -> None:
    text = compiled(function, architecture)
    assert f".target sm_{architecture[0]}{architecture[1]}" in text
    assert ".entry" in text
    doubles = re.findall(r".*\.f64.*", text)  # a GPU does fp64 at half the rate of fp32 or less
    assert not doubles, f"fp64 in {function.body.__name__}: {doubles[:3]}"
    assert ".local" not in text, "an array that should be in registers is in memory"


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas, which comes with the CUDA toolkit, is not found")
@each_architecture
@each_kernel
def test_assembles_without_spills(function: CudaFunction, architecture: tuple[int, int], tmp_path: Path) -> None:
    source = tmp_path / "kernel.ptx"
    source.write_text(compiled(function, architecture), encoding="utf-8")
    target = f"sm_{architecture[0]}{architecture[1]}"
    command = ["ptxas", "-v", f"-arch={target}", str(source), "-o", str(tmp_path / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Unsupported .version" in done.stderr:
        pytest.skip(f"ptxas is older than libnvvm: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    assert "0 bytes spill stores, 0 bytes spill loads" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("name", "loads"),
    [("scan_ends", 2), ("scan_block", 3), ("backward_ends", 2), ("backward_block", 4), ("add_rows", 2)],
)
def test_a_tile_is_loaded_before_it_is_computed(name: str, loads: int) -> None:
    """The order that hides the latency of memory: so many loads for each of 16 steps, and only then the first store."""
    (function,) = (function for function in FUNCTIONS if function.body.__name__ == name)
    accesses = re.findall(r"\b(ld|st)\.global", compiled(function, (9, 0)))
    runs = ["".join(group) for group in re.findall(r"((?:ld)+)((?:st)+)", "".join(accesses))]
    assert max(run.count("ld") for run in runs) >= loads * 16, f"longest runs of loads: {runs}"
