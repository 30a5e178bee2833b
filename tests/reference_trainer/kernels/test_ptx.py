"""Every CUDA kernel is compiled to PTX, and to machine code where ptxas is found: no spills, nothing in fp64."""

from __future__ import annotations

import importlib
import pkgutil
import re
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from reference_trainer import kernels
from reference_trainer.kernels import Kernel
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
    launched = {module.__name__ for module in MODULES for value in vars(module).values() if isinstance(value, Kernel)}
    without = launched - {function.body.__module__ for function in FUNCTIONS}
    assert {name.rpartition(".")[2] for name in without} <= {"matmul"}, "it calls cuBLAS"


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


BUSY_WITH_64_BITS = {"fill_normals", "fill_students"}
"""Philox computes with words of 64 bits."""


@each_kernel
def test_indices_take_few_instructions_of_64_bits(function: CudaFunction) -> None:
    """A GPU adds 64 bits in two instructions; with Numba's own int64 counters an element costs 5 to 10 of them."""
    body = compiled(function, (9, 0)).partition(".entry")[2]
    accesses, wide = 0, 0
    for block in re.split(r"^\$L__BB\w+:", body, flags=re.MULTILINE):
        operations = re.findall(r"^\s+(?:@!?%p\d+ )?([a-z]+[\w.]*)\s", block, re.MULTILINE)
        found = sum(operation.startswith(("ld.global", "st.global")) for operation in operations)
        if found > accesses:
            accesses = found
            arithmetic = [operation for operation in operations if not operation.startswith(("ld", "st", "cvta"))]
            wide = sum(bool(re.search(r"^mul\.wide|\.[sub]64$", operation)) for operation in arithmetic)
    if function.body.__name__ not in BUSY_WITH_64_BITS:
        assert wide <= 4 * accesses, f"{wide} of 64 bits for {accesses} accesses to memory"


needs_ptxas = pytest.mark.skipif(
    shutil.which("ptxas") is None, reason="ptxas, which comes with the CUDA toolkit, is not found"
)


def assembled(function: CudaFunction, architecture: tuple[int, int], folder: Path) -> tuple[str, bytes]:
    """What ptxas reports of a kernel, and its machine code."""
    source, binary = folder / "kernel.ptx", folder / "kernel.cubin"
    source.write_text(compiled(function, architecture), encoding="utf-8")
    target = f"sm_{architecture[0]}{architecture[1]}"
    command = ["ptxas", "-v", f"-arch={target}", str(source), "-o", str(binary)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Unsupported .version" in done.stderr:
        pytest.skip(f"ptxas is older than libnvvm: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    return done.stderr, binary.read_bytes()


@needs_ptxas
@each_architecture
@each_kernel
def test_assembles_without_spills(function: CudaFunction, architecture: tuple[int, int], tmp_path: Path) -> None:
    report, _ = assembled(function, architecture, tmp_path)
    assert "0 bytes spill stores, 0 bytes spill loads" in report, report


TILES = {"scan_ends": 2, "scan_block": 3, "backward_ends": 2, "backward_block": 4, "add_rows": 2}
"""Numbers that a kernel loads for each of the 16 steps of a tile."""


@pytest.mark.parametrize("name", TILES)
def test_a_tile_is_loaded_before_it_is_computed(name: str) -> None:
    """The order that hides the latency of memory: all loads of a tile, and only then the first store."""
    accesses = re.findall(r"\b(ld|st)\.global", compiled(named(name), (9, 0)))
    runs = ["".join(group) for group in re.findall(r"((?:ld)+)((?:st)+)", "".join(accesses))]
    assert max(run.count("ld") for run in runs) >= TILES[name] * 16, f"longest runs of loads: {runs}"


LOAD, STORE, BRANCH = 0x981, 0x986, 0x947  # the last 12 bits of instructions LDG, STG and BRA of sm_90


@needs_ptxas
@pytest.mark.parametrize("name", [*TILES, "score_rows"])
def test_machine_code_loads_a_tile_at_once(name: str, tmp_path: Path) -> None:
    """ptxas moves loads down to where they are used unless something holds them: two are in flight then, not 32."""
    _, binary = assembled(named(name), (9, 0), tmp_path)
    codes = [number & 0xFFF for (number, _) in struct.iter_unpack("<QQ", machine_code(binary))]
    between = "".join({LOAD: "L", STORE: ".", BRANCH: "."}.get(code, "") for code in codes)
    most = max(map(len, between.split(".")))
    expected = 8 if name == "score_rows" else TILES[name] * 16
    assert most >= 0.9 * expected, f"{most} loads at once, not {expected}"


def machine_code(binary: bytes) -> bytes:
    """The section .text of an ELF file."""
    (headers,) = struct.unpack_from("<Q", binary, 0x28)
    count, names = struct.unpack_from("<HH", binary, 0x3C)
    sections = [struct.unpack_from("<IIQQQQ", binary, headers + 64 * number) for number in range(count)]
    (found,) = (section for section in sections if binary[sections[names][4] + section[0] :].startswith(b".text."))
    return binary[found[4] : found[4] + found[5]]


def named(name: str) -> CudaFunction:
    (function,) = (function for function in FUNCTIONS if function.body.__name__ == name)
    return function
