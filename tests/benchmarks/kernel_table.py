"""Writes docs/kernels.md: registers, shared memory, occupancy and roofline bound of every CUDA kernel. Needs no GPU.

    .venv/bin/python -m tests.benchmarks.kernel_table > docs/kernels.md

The kernels are compiled to PTX by libnvvm and to machine code by ptxas, which has to be on the PATH (CUDA toolkit).
Block sizes are those of the launches that the trainer makes at preset gpu, recorded from the CUDA device on the CPU.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from reference_trainer.devices.cuda import CudaDevice
from reference_trainer.kernels.on_cuda import CudaFunction
from reference_trainer.lm.learn_chunk import LearnChunk
from reference_trainer.lm.model import PRESETS, ModelConfig, initial_weights
from reference_trainer.lm.parameters import layout
from reference_trainer.lm.pipeline import Pipeline
from reference_trainer.lm.plan import Plan, plan, variant_fixes
from reference_trainer.lm.roofline import CARDS
from reference_trainer.ssm.kernels.scan import THREADS
from tests.reference_trainer.kernels.test_ptx import FUNCTIONS, assembled

TOKENS: Final = 3000
TARGET: Final = (9, 0)
CARD: Final = CARDS["h100"]
SHORTEST_S: Final = 2e-6
# An SM of compute capability 9.0: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability".
REGISTERS, REGISTER_UNIT, WARPS, BLOCKS, SHARED_BYTES, RESERVED_BYTES = 65_536, 256, 64, 32, 233_472, 1024
EXP: Final = 20
"""Operations of `elementwise.exp`, counted in its source."""


@dataclass(frozen=True)
class Sizes:
    """The shapes that bytes and operations follow from."""

    tokens: int
    width: int
    layers: int
    vocabulary: int
    parameters: int


Cost = Callable[[Sizes], tuple[float, float]]
COSTS: Final[dict[str, Cost]] = {
    "embed_rows": lambda s: (8 * s.tokens * s.width, 0),
    "scan_ends": lambda s: (8 * s.tokens * s.width, (EXP + 9) * s.tokens * s.width),
    "scan_block": lambda s: (16 * s.tokens * s.width, (EXP + 9) * s.tokens * s.width),
    "score_rows": lambda s: (4 * s.tokens * s.vocabulary, 2 * s.tokens * s.vocabulary),
    "predict_rows": lambda s: (4 * s.tokens * s.vocabulary, 2 * s.tokens * s.vocabulary),
    "leak": lambda s: (32 * s.width, (EXP + 10) * s.width),
    "choose": lambda s: (8 * s.vocabulary, 2 * s.vocabulary),
    "step_in_one_block": lambda s: (
        4 * (2 * s.layers + 1) * s.width**2, 2 * (2 * s.layers + 1) * s.width**2 + (EXP + 10) * s.layers * s.width,
    ),
    "decode_in_one_block": lambda s: (4 * s.width * s.vocabulary, 2 * s.width * s.vocabulary),
    "differentiate_rows": lambda s: (8 * s.tokens * s.vocabulary, (2 * EXP + 9) * s.tokens * s.vocabulary),
    "add_strips": lambda s: (4 * s.tokens * s.vocabulary, s.tokens * s.vocabulary),
    "backward_ends": lambda s: (8 * s.tokens * s.width, (EXP + 6) * s.tokens * s.width),
    "backward_block": lambda s: (24 * s.tokens * s.width, (EXP + 14) * s.tokens * s.width),
    "sort_by_token": lambda s: (4 * s.vocabulary * s.width, 4 * s.tokens**2),
    "add_rows": lambda s: (8 * s.tokens * s.width, s.tokens * s.width),
    "add_squares": lambda s: (4 * s.parameters, 2 * s.parameters),
    "update": lambda s: (28 * s.parameters, 18 * s.parameters),
}  # fmt: skip
"""Bytes that a launch reads from memory and writes to it at least, and its operations; others do next to nothing."""


class Recording(CudaDevice):
    """Records the block size of each kernel, and runs none."""

    def __init__(self, threads: dict[str, int]) -> None:
        super().__init__(_torch_device="cpu")
        self._threads = threads

    def start(self, function: CudaFunction, blocks: int, threads: int, *arguments: Any) -> None:
        self._threads.setdefault(function.body.__name__, threads)

    def _put(self, *arguments: Any, **options: Any) -> None:
        """Compute no product."""


def block_sizes() -> tuple[dict[str, int], set[str]]:
    """Threads of a block by kernel, and the kernels that only a narrower model than that of preset gpu launches."""
    threads: dict[str, int] = {}
    fixed = plan(variant_fixes("fixed", "host"))
    record(PRESETS["gpu"], threads, fixed, TOKENS)
    for chosen in (Plan(), plan(("batch-decode",)), plan(("async", "device-loss"))):
        record(PRESETS["gpu"], threads, chosen, 2)
    config = PRESETS["gpu"]
    learner = LearnChunk(Recording(threads), config, initial_weights(config, 0), TOKENS)
    learner.submit(np.zeros(TOKENS + 1, np.int32))
    at_gpu = set(threads)
    record(PRESETS["tiny"], threads, Plan(), 2)
    return threads, set(threads) - at_gpu


def record(config: ModelConfig, threads: dict[str, int], chosen: Plan, tokens: int) -> None:
    pipeline = Pipeline(Recording(threads), config, initial_weights(config, 0), tokens, chosen)
    pipeline.submit(np.zeros(tokens + 1, np.int32))


def resources(function: CudaFunction, folder: Path) -> tuple[int, int, int]:
    """Registers of a thread, bytes of shared memory, and bytes of spills, as ptxas reports them."""
    report, _ = assembled(function, TARGET, folder)
    registers = re.search(r"Used (\d+) registers", report)
    shared, spilled = re.search(r"(\d+) bytes smem", report), re.findall(r"(\d+) bytes spill", report)
    assert registers, report
    return int(registers[1]), int(shared[1]) if shared else 0, sum(map(int, spilled))


def occupancy(threads: int, registers: int, shared: int) -> float:
    """Share of an SM's warps that can be resident."""
    warps = -(-threads // 32)
    by_registers = REGISTERS // (-(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT) // warps
    by_memory = SHARED_BYTES // (shared + RESERVED_BYTES)
    return min(by_registers, by_memory, BLOCKS, WARPS // warps) * warps / WARPS


def row(function: CudaFunction, threads: int, sizes: Sizes, folder: Path) -> str:
    name = function.body.__name__
    registers, shared, spilled = resources(function, folder)
    cells = [
        f"`{name}`", function.body.__module__.removeprefix("reference_trainer.").replace(".", "/") + ".py",
        str(threads), str(registers), f"{shared:,}", str(spilled), f"{occupancy(threads, registers, shared):.0%}",
    ]  # fmt: skip
    if name not in COSTS:
        return "| " + " | ".join([*cells, "", "", "", ""]) + " |"
    moved, operations = COSTS[name](sizes)
    memory, arithmetic = moved / CARD.bytes_per_s, operations / CARD.flops["fp32"]
    bound = "latency" if max(memory, arithmetic) < SHORTEST_S else "memory" if memory > arithmetic else "arithmetic"
    cells += [f"{moved / 1e6:.3g}", f"{operations / moved:.2f}", f"{max(memory, arithmetic) * 1e6:.3g}", bound]
    return "| " + " | ".join(cells) + " |"


def page() -> str:
    """The whole page."""
    gpu, tiny = PRESETS["gpu"], PRESETS["tiny"]
    threads, narrow = block_sizes()
    sizes = {
        name: Sizes(TOKENS, config.width, config.layers, config.vocabulary, layout(config).size)
        for name, config in (("gpu", gpu), ("tiny", tiny))
    }
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            row(
                function,
                threads.get(function.body.__name__, THREADS),
                sizes["tiny" if function.body.__name__ in narrow else "gpu"],
                Path(folder),
            )
            for function in FUNCTIONS
            if function.body.__name__ in threads or ".ssm." in function.body.__module__
        ]
    version = re.findall(r"release [\d.]+", subprocess.check_output(["ptxas", "--version"], text=True))
    return PAGE.format(
        heads=f"| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|",
        rows="\n".join(rows),
        ptxas=version[0],
        width=gpu.width,
        layers=gpu.layers,
        vocabulary=f"{gpu.vocabulary:,}",
        tokens=f"{TOKENS:,}",
        card=CARD.name,
        bandwidth=CARD.bytes_per_s / 1e12,
        flops=CARD.flops["fp32"] / 1e12,
        ridge=CARD.flops["fp32"] / CARD.bytes_per_s,
        narrow=", ".join(f"`{name}`" for name in sorted(narrow)),
    )


HEADS: Final = (
    "kernel", "file", "threads", "registers", "shared bytes", "spilled bytes", "occupancy", "MB", "operations per byte",
    "roofline µs", "bound",
)  # fmt: skip
PAGE: Final = """# CUDA kernels

<!-- Written by tests/benchmarks/kernel_table.py; do not edit it. -->

    .venv/bin/python -m tests.benchmarks.kernel_table > docs/kernels.md

No figure of this page was measured on a GPU.

- **Registers, shared and spilled bytes**: reported by ptxas ({ptxas}) for sm_90.
- **Occupancy**: the share of the 64 warps of a multiprocessor that registers, shared memory and block size admit.
  Kernels of a single thread or block leave the other multiprocessors idle at any occupancy.
- **MB and operations per byte**: of one launch at preset `gpu` (width {width}, {layers} layers, vocabulary
  {vocabulary}, {tokens} tokens in a chunk). Bytes are the least that a launch must read and write. Operations are
  counted in the source; an exponential counts as 20. Only narrower models launch {narrow}, so their figures are of
  preset `tiny`.
- **Roofline time**: the larger of two times, for the bytes and for the operations, at the peaks of an {card}
  ({bandwidth:.3g} TB/s, {flops:.3g} TFLOPS in fp32). Below {ridge:.0f} operations per byte, memory is the bound.
  Below 2 µs, latency is the bound.

Rows without these figures move a few kilobytes, or belong to the sweep, whose sizes vary.

The figures contain neither index arithmetic nor latency; `tests/reference_trainer/kernels/test_ptx.py` bounds both.
Where memory is accessed most often, an access costs at most 4 integer instructions of 64 bits (`fill_normals` and
`fill_students` compute random numbers in 64 bits). With Numba's own int64 counters it was 5 to 14. In the machine
code, all loads of a tile are issued before the first is used.

{heads}
{rows}

Matrix products are cuBLAS's and have no row. [On a GPU](gpu.md) gives the model of whole chunks.
"""

if __name__ == "__main__":
    print(page(), end="")
