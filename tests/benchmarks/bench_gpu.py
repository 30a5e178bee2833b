"""What the trainer does on a real GPU: speed of the variants, utilisation, each kernel's time, each call's cost.

    python tests/benchmarks/bench_gpu.py [--preset gpu] [--seconds 5] > bench_gpu.json

prints one JSON object; interrupted, what it has by then. Kernels are rated by what the mathematics needs at least, as a
share of peaks measured in the same call. Where there is no GPU it says why on standard error and prints nothing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from reference_trainer.devices import cuda
from reference_trainer.devices.cuda import CudaDevice
from reference_trainer.kernels import decode_token, embed, empty, modulate, recurrent_step, scan, score
from reference_trainer.lm import roofline
from reference_trainer.lm.loop import train
from reference_trainer.lm.model import ModelConfig, preset
from reference_trainer.lm.plan import fixes, variant_fixes
from reference_trainer.lm.settings import Settings
from tests.benchmarks import gpu_learning

TOKENS = 3000
REPEATS = 20
PEAK_BYTES = 2 << 30  # copied to find the bandwidth: far more than the second-level cache holds
PEAK_SIZE = 8192  # of a product that finds the peak in fp32
NVML_PERIOD = 0.05  # seconds; NVML itself averages over a sixth of a second to a second


def environment() -> dict[str, Any]:
    import torch

    properties = torch.cuda.get_device_properties(0)
    versions = {}
    for name in ("numpy", "numba", "numba-cuda", "nvidia-ml-py"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "gpu": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        **versions,
    }


class Nvml:
    """Samples the first GPU from a thread while something runs; None values where NVML cannot tell."""

    def __init__(self) -> None:
        self._samples: list[tuple[int, int, int]] = []
        self._stop = threading.Event()
        self._reason = ""
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        try:
            import pynvml
        except ImportError:
            self._reason = "nvidia-ml-py is not installed"
            return
        try:
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            while not self._stop.wait(NVML_PERIOD):
                self._samples.append(
                    (
                        pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
                        pynvml.nvmlDeviceGetPowerUsage(handle),
                        pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
                    )
                )
        except pynvml.NVMLError as error:
            self._reason = str(error)

    def means(self) -> dict[str, Any]:
        if not self._samples:
            return {"utilisation": None, "reason": self._reason or "it ended before the first sample"}
        gpu, power, clock = (statistics.fmean(column) for column in zip(*self._samples, strict=True))
        return {"utilisation": gpu / 100, "watts": power / 1000, "sm_mhz": clock, "samples": len(self._samples)}


def variant(chosen: tuple[str, ...], dtype: str, preset_name: str, seconds: float) -> dict[str, Any]:
    """Train with these fixes for so long; speed, and what NVML saw from the start on (warm-up included)."""
    with Nvml() as nvml:
        summary = train(Settings(fixes=chosen, dtype=dtype, preset=preset_name, device="cuda", seconds=seconds))
    return {**asdict(summary), "nvml": nvml.means()}


def variants() -> dict[str, tuple[tuple[str, ...], str]]:
    """Names, fixes and dtypes of the runs."""
    cures, known = variant_fixes("fixed", "cuda"), fixes()
    excluded = {name for name in cures if name in known["learn"].excludes or "learn" in known[name].excludes}
    learning = tuple(name for name in cures if name not in excluded)
    graph = tuple(dict.fromkeys((*cures, "cuda-graph")))
    return {
        "as-found": ((), "fp32"),
        "fixed": (cures, "fp32"),
        "fixed, graph": (graph, "fp32"),
        "learning": ((*learning, "learn"), "fp32"),
        "learning, graph": ((*learning, "cuda-graph", "learn"), "fp32"),
        **{f"fixed, graph, {dtype}": (graph, dtype) for dtype in ("tf32", "bf16")},
    }


def device_seconds(work: Callable[[], object]) -> float:
    """Median of REPEATS, between two CUDA events around it."""
    import torch

    work()
    times = []
    for _ in range(REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return statistics.median(times)


def wall_seconds(device: CudaDevice, work: Callable[[], object], calls: int = 200) -> float:
    """Seconds a call, the device's work included: median of REPEATS times `calls`, and a sync at the end."""
    work()
    times = []
    for _ in range(REPEATS):
        device.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            work()
        device.synchronize()
        times.append((time.perf_counter() - begin) / calls)
    return statistics.median(times)


@dataclass(frozen=True)
class Peaks:
    """Rates that this GPU reached in this call."""

    gb_per_s: float
    """Rate of a copy within the device, reads and writes added."""
    tflops: float
    """Rate of a product in fp32 by cuBLAS, without TF32."""


def peaks(device: CudaDevice) -> Peaks:
    source, target = (device.empty((PEAK_BYTES // 4,)) for _ in range(2))
    copy = device_seconds(lambda: target.tensor.copy_(source.tensor))
    a, b, out = (device.empty((PEAK_SIZE, PEAK_SIZE)) for _ in range(3))
    product = device_seconds(lambda: device.matmul(out, a, b, PEAK_SIZE))
    return Peaks(2 * PEAK_BYTES / copy / 1e9, 2 * PEAK_SIZE**3 / product / 1e12)


def rated(seconds: float, *, flops: float = 0.0, moved: float = 0.0, best: Peaks | None = None) -> dict[str, float]:
    """With rates from what the mathematics needs at least: operations, and bytes read and written once."""
    found = {"seconds": seconds}
    if flops:
        found["tflops"] = flops / seconds / 1e12
    if moved:
        found["gb_per_s"] = moved / seconds / 1e9
    if best is not None:
        found.update((f"share_of_{name}", found[name] / getattr(best, name)) for name in tuple(found)[1:])
    return found


def chunk_kernels(device: CudaDevice, config: ModelConfig, best: Peaks) -> dict[str, Any]:
    """Each kernel of the whole chunk on its own, of TOKENS tokens, and those that learning adds."""
    width, vocabulary, tokens = config.width, config.vocabulary, TOKENS
    x, projected = device.zeros((tokens, width)), device.zeros((tokens, 2 * width))
    logits, readouts = device.zeros((tokens, vocabulary)), device.zeros((tokens, width))
    table, layer = device.zeros((vocabulary, width)), device.zeros((width, 2 * width))
    readout, decoder = device.zeros((width, width)), device.zeros((width, vocabulary))
    bias, state, one = device.zeros((1, 2 * width)), device.zeros((1, width)), device.zeros((1,))
    decoder_bias, results = device.zeros((vocabulary,)), device.zeros((3,))
    ids, predictions = device.zeros((tokens + 1,), "int32"), device.zeros((tokens,), "int32")
    works: dict[str, tuple[Callable[[], object], float, float]] = {
        "embed": (
            lambda: device.launch(embed.KERNEL, x, table, ids, tokens, width, vocabulary), 0, 8 * tokens * width,
        ),
        "layer matmul": (
            lambda: device.matmul(projected, x, layer, tokens), 4 * tokens * width**2,
            4 * (3 * tokens * width + 2 * width**2),
        ),
        "scan": (
            lambda: device.launch(scan.KERNEL, x, projected, bias, state, one, tokens, width, 0, 1), 0,
            16 * tokens * width,
        ),
        "readout matmul": (
            lambda: device.matmul(readouts, x, readout, tokens), 2 * tokens * width**2,
            4 * (2 * tokens * width + width**2),
        ),
        "logits matmul": (
            lambda: device.matmul(logits, readouts, decoder, tokens), 2 * tokens * width * vocabulary,
            4 * (tokens * (width + vocabulary) + width * vocabulary),
        ),
        "score": (
            lambda: device.launch(score.KERNEL, predictions, one, logits, decoder_bias, ids, tokens, vocabulary), 0,
            4 * tokens * vocabulary,
        ),
        "modulate": (lambda: device.launch(modulate.KERNEL, results, one, one, tokens), 0, 0),
    }  # fmt: skip
    works |= gpu_learning.learning_kernels(device, config, tokens)
    return {
        name: rated(device_seconds(work), flops=flops, moved=moved, best=best)
        for name, (work, flops, moved) in works.items()
    }


def token_kernels(device: CudaDevice, config: ModelConfig) -> dict[str, Any]:
    """A token's recurrent step and decoder, by one block and by cuBLAS where one block can; wall time a call."""
    width, layers, vocabulary = config.width, config.layers, config.vocabulary
    shapes = [(1, width), (1, width), (layers * width, 2 * width), (layers, 2 * width), (width, width), (layers, width)]
    step = [device.zeros(shape) for shape in [*shapes, (1,), (2 * width,)]]
    decoder = [device.zeros(shape) for shape in [(1, width), (width, vocabulary), (vocabulary,), (vocabulary,)]]
    prediction = device.zeros((1,), "int32")
    bytes_of_step = 4 * (2 * layers + 1) * width**2
    found: dict[str, Any] = {}
    for name, largest in (("one block", 1 << 62), ("cublas", 0)):
        if largest and width > 512:
            continue  # minutes, and nobody would
        before = recurrent_step.ONE_BLOCK_ELEMENTS
        recurrent_step.ONE_BLOCK_ELEMENTS = decode_token.ONE_BLOCK_ELEMENTS = largest
        try:
            found[name] = {
                "recurrent step": rated(
                    wall_seconds(device, lambda: device.launch(recurrent_step.KERNEL, *step, width, layers, 0, 0)),
                    moved=bytes_of_step,
                ),
                "decode": rated(
                    wall_seconds(
                        device,
                        lambda: device.launch(decode_token.KERNEL, prediction, *decoder, width, vocabulary, 0, 0),
                    ),
                    moved=4 * width * vocabulary,
                ),
            }
        finally:
            recurrent_step.ONE_BLOCK_ELEMENTS = decode_token.ONE_BLOCK_ELEMENTS = before
    return found


def call_costs(device: CudaDevice) -> dict[str, float]:
    """Wall seconds of one call of each kind."""
    row, one = np.zeros(4096, np.float32), device.zeros((1,))
    pinned, buffer = device.pinned((4096,)), device.empty((4096,))
    return {
        "launch": wall_seconds(device, lambda: device.launch(empty.KERNEL)),
        "upload of 16 KiB, pageable": wall_seconds(device, lambda: device.upload(row)),
        "upload of 16 KiB, pinned": wall_seconds(device, lambda: device.upload_into(buffer, pinned)),
        "download of 4 bytes": wall_seconds(device, lambda: device.download(one)),
        "allocation": wall_seconds(device, lambda: device.empty((4096,))),
    }


def measure(preset_name: str, seconds: float, found: dict[str, Any]) -> None:
    """Fill `found`, the dearest last: an interrupt leaves what is there."""
    device, config = CudaDevice(), preset(preset_name)
    best = peaks(device)
    found["environment"] = environment()
    found["preset"] = {"name": preset_name, **asdict(config)}
    found["tokens_per_chunk"] = TOKENS
    found["modeled, not measured"] = {
        dtype: roofline.facts(config, device.label, dtype, TOKENS) for dtype in ("fp32", "tf32", "bf16")
    }
    found["peaks"] = asdict(best)
    found["chunk"] = chunk_kernels(device, config, best)
    found["scan"] = gpu_learning.scans_over_width(device, TOKENS, device_seconds)
    found["graph"] = gpu_learning.graph_costs(device, wall_seconds)
    step = gpu_learning.learning_step(device, config, TOKENS)
    found["learning step"] = {**step, "share_of_tflops": step["tflops"] / best.tflops}
    found["calls"] = call_costs(device)
    found["token at preset"] = token_kernels(device, config)
    widths = (32, 64, 128, 256, 362, 512)
    found["token"] = {str(width): token_kernels(device, ModelConfig(width, 2, 16 * width)) for width in widths}
    device.close()
    del device
    found["variants"] = {}
    for name, (chosen, dtype) in variants().items():
        found["variants"][name] = variant(chosen, dtype, preset_name, seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="gpu")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured time of each variant")
    arguments = parser.parse_args()
    if reason := cuda.unavailable():
        print(f"skipped: {reason}", file=sys.stderr)
        sys.exit()
    measured: dict[str, Any] = {}
    try:
        measure(arguments.preset, arguments.seconds, measured)
    except KeyboardInterrupt:
        measured["interrupted"] = True
        print("interrupted: what was measured by then follows", file=sys.stderr)
    print(json.dumps(measured, indent=2))
