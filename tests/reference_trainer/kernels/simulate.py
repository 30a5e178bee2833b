"""Runs the CUDA kernels in Numba's simulator, through the CUDA device on the CPU; prints a JSON line a check.

A program of its own: NUMBA_ENABLE_CUDASIM=1 must be set before Numba is imported.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.cuda.simulator import kernelapi

from reference_trainer.devices.cuda import CudaDevice
from reference_trainer.devices.host import HostDevice
from reference_trainer.devices.protocol import Device
from reference_trainer.lm.learn_chunk import LearnChunk
from reference_trainer.lm.model import ModelConfig, Weights, initial_weights
from reference_trainer.lm.pipeline import Pipeline
from reference_trainer.lm.plan import Plan, plan, variant_fixes
from tests.benchmarks import bench_gpu, gpu_learning
from tests.reference_trainer.kernels import cases, checks, graphs

CONFIG = ModelConfig(width=5, layers=2, vocabulary=11)
TOKENS = 18  # a tile of the scan and a rest
CUDA = "cpu"


class SharedArrays(dict):  # type: ignore[type-arg]
    """Shared arrays by the line that asks for them: who finds none makes one before another looks.

    In the simulator's own dict two threads that are first at the same time get an array each.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def get(self, line: Any) -> Any:
        self._lock.acquire()
        found = super().get(line)
        if found is not None:
            self._lock.release()
        return found

    def __setitem__(self, line: Any, array: Any) -> None:
        super().__setitem__(line, array)
        self._lock.release()


def hasten() -> None:
    """Make the simulator quick: it polls its threads, which get a turn when the poll loses the GIL, after 5 ms."""

    def begin(shared: Any, size: int) -> None:
        shared._allocations, shared._dynshared_size, shared._dynshared = SharedArrays(), size, np.zeros(size, np.int8)

    kernelapi.FakeCUDAShared.__init__ = begin
    sys.setswitchinterval(1e-5)


def report(name: str, work: Callable[[], object]) -> None:
    error = ""
    try:
        work()
    except Exception:  # noqa: BLE001 - the edge of this process: whatever it is, the test shows it
        error = traceback.format_exc()
    print(json.dumps({"name": name, "error": error}), flush=True)


def run_checks() -> None:
    device = CudaDevice(_torch_device=CUDA)
    for case in cases.FEW:
        report(checks.name(case), lambda case=case: checks.run(device, case))
    for way in cases.WAYS:
        with way.forced():
            for case in way.few:
                report(cases.name(way, case), lambda case=case: checks.run(device, case))


def forwards_agree() -> None:
    """A chunk both ways, twice, state carried: the same predictions and losses."""
    device = CudaDevice(_torch_device=CUDA)
    weights = initial_weights(CONFIG, seed=1)
    ids = np.random.default_rng(1).integers(0, CONFIG.vocabulary, (2, TOKENS + 1)).astype(np.int32)
    cured = [name for name in variant_fixes("fixed", "host") if name != "quiet-logging"]
    slow, quick = (Pipeline(device, CONFIG, weights, TOKENS, chosen) for chosen in (Plan(), plan(cured)))
    for chunk in ids:
        slow.submit(chunk)
        quick.submit(chunk)
        expected, found = slow.collect(), quick.collect()
        checks.equal("predictions", quick.predictions(), slow.predictions())
        assert abs(found.loss - expected.loss) < 1e-6, f"loss {found.loss} is not {expected.loss}"


def graphed_chunks_agree() -> None:
    """Chunks replayed from a graph of each place of their ids, and a short one between them that is launched."""
    device, lengths = CudaDevice(_torch_device=CUDA), (4, 4, 4, 4, 2, 4, 4)
    weights, random = initial_weights(CONFIG, seed=1), np.random.default_rng(1)
    cured = [name for name in variant_fixes("fixed", "host") if name != "quiet-logging"]
    plain, graphed = (Pipeline(device, CONFIG, weights, 4, plan(names)) for names in (cured, [*cured, "cuda-graph"]))
    for number, length in enumerate(lengths):
        ids = random.integers(0, CONFIG.vocabulary, length + 1).astype(np.int32)
        plain.submit(ids)
        before = device.counts().launches
        graphed.submit(ids)
        launches = device.counts().launches - before
        assert (launches == 1) == (number in {2, 3, 5, 6}), f"chunk {number}: {launches} launches"
        assert graphed.collect() == plain.collect(), f"chunk {number}"
        checks.equal("predictions", graphed.predictions(), plain.predictions())


def learning_agrees() -> None:
    """Two steps of learning, state carried: the losses, gradients and weights of the host device."""
    config, tokens = ModelConfig(width=3, layers=2, vocabulary=5), 5
    weights = initial_weights(config, seed=1)
    ids = np.random.default_rng(1).integers(0, config.vocabulary, (2, tokens + 1)).astype(np.int32)
    found, expected = (
        learned(device, config, weights, ids) for device in (CudaDevice(_torch_device=CUDA), HostDevice())
    )
    for name, array in expected.items():
        checks.close(name, found[name], array)


def learned(device: Device, config: ModelConfig, weights: Weights, ids: np.ndarray) -> dict[str, np.ndarray]:
    """Losses, and what is left after the last chunk."""
    chunk = LearnChunk(device, config, weights, ids.shape[1] - 1, tile=2)
    losses = []
    for row in ids:
        chunk.submit(row)
        losses.append(chunk.collect().loss)
    left = {"weights": chunk.weights(), "gradients": chunk.gradients()}
    arrays = {f"{kind} {name}": getattr(left[kind], name) for kind in left for name in Weights.__dataclass_fields__}
    device.close()
    return {"losses": np.array(losses, np.float32), **arrays}


def graphs_replay() -> None:
    with next(way for way in cases.WAYS if way.name == "time blocks").forced():
        graphs.replays_are_launches(CudaDevice(_torch_device=CUDA), tokens=40, width=3)


def benchmarks_launch() -> None:
    """Every call of `bench_gpu` on kernels, each made once and not timed: their arguments are those of the kernels."""
    bench_gpu.TOKENS, gpu_learning.WIDTHS, gpu_learning.GRAPH_LAUNCHES, gpu_learning.STEPS = 3, (2,), 2, 2
    bench_gpu.device_seconds = once
    bench_gpu.wall_seconds = lambda device, work, calls=0: once(work)
    device, peaks = CudaDevice(_torch_device=CUDA), bench_gpu.Peaks(1, 1)
    rates = bench_gpu.chunk_kernels(device, CONFIG, peaks)
    assert {"scan", "scan backward", "adamw", "cross-entropy"} <= set(rates)
    assert rates["layer matmul"]["share_of_tflops"] == rates["layer matmul"]["tflops"]
    assert set(gpu_learning.scans_over_width(device, 3, once)["2"]) >= {"forward, serial", "backward, in blocks"}
    assert gpu_learning.graph_costs(device, bench_gpu.wall_seconds)["launches"] == 2
    assert gpu_learning.learning_step(device, CONFIG, 3)["syncs"] == 1
    bench_gpu.token_kernels(device, CONFIG)


def once(work: Callable[[], object]) -> float:
    work()
    return 1.0


def empty_kernels_launch_once() -> None:
    """Every launch is one empty kernel, whatever the real one would have launched."""
    device = CudaDevice(_torch_device=CUDA, empty_kernels=True)
    forward = Pipeline(device, CONFIG, initial_weights(CONFIG, seed=1), TOKENS, Plan())
    before = device.counts()
    with cases.WAYS[0].forced():
        forward.submit(np.arange(4, dtype=np.int32))
    after = device.counts()
    assert after.launches - before.launches == 3 * 3 + 1, f"{after.launches - before.launches} launches"
    assert after.syncs - before.syncs == 2 * 3, f"{after.syncs - before.syncs} syncs"


if __name__ == "__main__":
    hasten()
    run_checks()
    report("forwards", forwards_agree)
    report("graphed chunks", graphed_chunks_agree)
    report("learning", learning_agrees)
    report("graph", graphs_replay)
    report("benchmarks", benchmarks_launch)
    report("empty", empty_kernels_launch_once)
