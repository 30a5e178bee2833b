"""What the trainer does on a real GPU: speed of the variants, utilisation, each kernel's time, each call's cost.

    python tests/benchmarks/bench_gpu.py [--preset gpu] [--seconds 5] --out bench_gpu.json

writes one JSON object, part by part: what ends it leaves the parts before. Kernels work on the first chunk of the
trainer's text and on its weights. They are rated by what the mathematics needs at least, as a share of peaks measured
in the same call; data that fits into the second-level cache stays there, as from kernel to kernel of a chunk. Where
there is no GPU it says why on standard error and writes nothing.
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
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from profiler.core.files import write_text
from reference_trainer.devices import cuda
from reference_trainer.devices.cuda import CudaDevice
from reference_trainer.kernels import decode_token, embed, empty, predict, recurrent_step, rewards, scan
from reference_trainer.lm import roofline
from reference_trainer.lm.job import open_source, prepare
from reference_trainer.lm.loop import train
from reference_trainer.lm.model import ModelConfig, initial_weights
from reference_trainer.lm.plan import fixes, variant_fixes
from reference_trainer.lm.settings import Settings
from tests.benchmarks import gpu_learning
from tests.benchmarks.gpu_learning import Data, noise

REPEATS = 7
LAUNCHES, REPLAYS = 10, 2  # calls in a graph, and how often it is replayed between two events
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


class HostEvent:
    """Stands for a CUDA event where tensors are on the CPU and everything is done at once."""

    def record(self) -> None:
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        """Do nothing: no work is in flight."""

    def elapsed_time(self, end: HostEvent) -> float:
        return 1000 * (end.time - self.time)


def device_seconds(device: CudaDevice, work: Callable[[], object], launches: int = LAUNCHES) -> float:
    """The device's time for a call of `work`: median of REPEATS, each between two events around replays of a graph.

    A launch by Numba takes the host longer than most kernels take the device: between events around single launches,
    mostly a waiting stream would be timed. In a graph about a microsecond between two kernels remains.
    """
    import torch

    def several() -> None:
        for _ in range(launches):
            work()

    work()
    graph, times = device.capture(several), []
    device.replay(graph)
    for _ in range(REPEATS):
        begin, end = (
            torch.cuda.Event(enable_timing=True) if torch.cuda.is_available() else HostEvent() for _ in range(2)
        )
        begin.record()
        for _ in range(REPLAYS):
            device.replay(graph)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000 / (REPLAYS * launches))
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
    source, target = (noise(device, (PEAK_BYTES // 4,)) for _ in range(2))
    copy = device_seconds(device, lambda: target.tensor.copy_(source.tensor), launches=1)
    a, b, out = (noise(device, (PEAK_SIZE, PEAK_SIZE)) for _ in range(3))
    product = device_seconds(device, lambda: device.matmul(out, a, b, PEAK_SIZE), launches=1)
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


def first_chunk(preset_name: str) -> Data:
    """The first chunk of the trainer's text, and the weights that it begins with."""
    job = prepare(Settings(preset=preset_name, device="cuda"))
    with closing(open_source(job)) as source:
        return Data(job.config, initial_weights(job.config, seed=0), source.ids(0))


def chunk_kernels(device: CudaDevice, data: Data, best: Peaks) -> dict[str, Any]:
    """Each kernel of the whole chunk on its own, in the order of a chunk but for the scan, which changes its input;
    and those that learning adds."""
    config, weights, tokens = data.config, data.weights, data.tokens
    width, vocabulary = config.width, config.vocabulary
    x, projected = device.zeros((tokens, width)), device.zeros((tokens, 2 * width))
    logits, readouts = device.zeros((tokens, vocabulary)), device.zeros((tokens, width))
    table, layer = device.upload(weights.embedding), device.upload(weights.layer[0])
    readout, decoder = device.upload(weights.readout), device.upload(weights.decoder)
    bias, decoder_bias = device.upload(weights.bias[:1]), device.upload(weights.decoder_bias)
    state, one, results = device.zeros((1, width)), device.zeros((1,)), device.zeros((3,))
    ids, predictions = device.upload(data.ids), device.zeros((tokens,), "int32")
    works: dict[str, tuple[Callable[[], object], float, float]] = {
        "embed": (
            lambda: device.launch(embed.EMBED, x, table, ids, tokens, width, vocabulary), 0, 8 * tokens * width,
        ),
        "layer matmul": (
            lambda: device.matmul(projected, x, layer, tokens), 4 * tokens * width**2,
            4 * (3 * tokens * width + 2 * width**2),
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
            lambda: device.launch(predict.SCORE, predictions, one, logits, decoder_bias, ids, tokens, vocabulary), 0,
            4 * tokens * vocabulary,
        ),
        "modulate": (lambda: device.launch(rewards.MODULATE, results, one, one, tokens), 0, 0),
        "scan": (
            lambda: device.launch(scan.SCAN, x, projected, bias, state, one, tokens, width, 0, 1), 0,
            16 * tokens * width,
        ),
    }  # fmt: skip
    works |= gpu_learning.learning_kernels(device, data)
    return {
        name: rated(device_seconds(device, work), flops=flops, moved=moved, best=best)
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


def measure(preset_name: str, seconds: float) -> Iterator[tuple[str, Any]]:
    """Name and figures of each part, what is worth most first."""
    yield "environment", environment()
    device, data = CudaDevice(), first_chunk(preset_name)
    config, tokens = data.config, data.tokens
    best = peaks(device)
    yield "preset", {"name": preset_name, **asdict(config), "tokens_per_chunk": tokens}
    models = {dtype: roofline.facts(config, device.label, dtype, tokens) for dtype in ("fp32", "tf32", "bf16")}
    yield "modeled, not measured", models
    yield "peaks", asdict(best)
    yield "chunk", chunk_kernels(device, data, best)
    step = gpu_learning.learning_step(device, data)
    yield "learning step", {**step, "share_of_tflops": step["tflops"] / best.tflops}
    yield "graph", gpu_learning.graph_costs(device, wall_seconds)
    yield "calls", call_costs(device)
    done = {}
    for name, (chosen, dtype) in variants().items():
        done[name] = variant(chosen, dtype, preset_name, seconds)
        yield "variants", done
    yield "scan", gpu_learning.scans_over_width(device, tokens, device_seconds)
    yield "token at preset", token_kernels(device, config)
    widths = (32, 64, 128, 256, 362, 512)
    yield "token", {str(width): token_kernels(device, ModelConfig(width, 2, 16 * width)) for width in widths}
    device.close()


def save(path: Path, measured: dict[str, Any]) -> None:
    write_text(path, json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="gpu")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured time of each variant")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where the results go")
    arguments = parser.parse_args()
    if reason := cuda.unavailable():
        print(f"skipped: {reason}", file=sys.stderr)
        sys.exit()
    measured: dict[str, Any] = {}
    try:
        for part, figures in measure(arguments.preset, arguments.seconds):
            measured[part] = figures
            save(arguments.out, measured)
    except KeyboardInterrupt:
        save(arguments.out, {**measured, "interrupted": True})
        sys.exit(f"interrupted: what was measured by then is in {arguments.out}")
