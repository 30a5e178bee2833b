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
from numba.cuda.simulator import kernel, kernelapi

from reference_trainer.devices.cuda import CudaDevice
from reference_trainer.devices.host import HostDevice
from reference_trainer.devices.protocol import Device
from reference_trainer.kernels import empty
from reference_trainer.lm.learn_chunk import LearnChunk
from reference_trainer.lm.model import ModelConfig, Weights, initial_weights
from reference_trainer.lm.observed import ObservedDevice, Outcome
from reference_trainer.lm.pipeline import Pipeline
from reference_trainer.lm.plan import Plan, plan, variant_fixes
from reference_trainer.lm.result import Forward, Result
from tests.benchmarks import bench_gpu, gpu_learning
from tests.reference_trainer.kernels import cases, checks, graphs
from tests.reference_trainer.lm.test_learn_chunk import gradients_of

CONFIG = ModelConfig(width=5, layers=2, vocabulary=11)
TOKENS = 18  # a tile of the scan and a rest
FIXES = [name for name in variant_fixes("fixed", "host") if name != "quiet-logging"]
CUDA = "cpu"


class Unwritten(CudaDevice):
    """Memory that is taken holds what `unwritten` has, also where it comes from a pool."""

    def _empty(self, *inputs: Any) -> Any:
        buffer = super()._empty(*inputs)
        buffer.storage.bytes.fill_(0xFF)
        return buffer


class Barrier:
    """A barrier for the threads of a CUDA block, which does not wait for those that have returned."""

    def __init__(self, threads: int) -> None:
        self._changed = threading.Condition()
        self._running = threads
        self._here = self._round = 0

    def meet(self) -> None:
        with self._changed:
            self._here += 1
            if self._here < self._running:
                began = self._round
                self._changed.wait_for(lambda: self._round > began)
            else:
                self._go_on()

    def leave(self) -> None:
        with self._changed:
            self._running -= 1
            if self._here and self._here == self._running:
                self._go_on()

    def _go_on(self) -> None:
        self._here = 0
        self._round += 1
        self._changed.notify_all()


def run_block(manager: Any, position: tuple[int, ...], *arguments: Any) -> None:
    """Run all threads of a block to their end; raise the first error."""
    points = list(np.ndindex(*manager._block_dim))
    barrier, errors = Barrier(len(points)), []

    def work() -> None:
        try:
            manager._f(*arguments)
        except Exception as error:  # noqa: BLE001 - raised again below
            errors.append(error)
        finally:
            barrier.leave()

    threads = [kernel.BlockThread(work, manager, position, point, False) for point in points]
    for thread in threads:
        thread.syncthreads = barrier.meet
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def hasten() -> None:
    """Make the simulator quick and sure: by itself it polls its threads, and walks all frames for a shared array.

    Two threads that are first at the same time would get a shared array each, too.
    """
    one_at_a_time = threading.Lock()

    def array(shared: Any, shape: int, dtype: type) -> np.ndarray:
        caller = sys._getframe(1)
        line = caller.f_code, caller.f_lineno
        with one_at_a_time:
            if line not in shared._allocations:
                shared._allocations[line] = unwritten(shape, dtype)
            return shared._allocations[line]

    kernel.BlockManager.run = run_block
    kernelapi.FakeCUDAShared.array = array
    kernelapi.FakeCUDALocal.array = lambda _, shape, dtype: unwritten(shape, dtype)


def unwritten(shape: int, dtype: type) -> np.ndarray:
    """Memory of NaN or -1, which a kernel must not read; fresh memory is often 0 and would hide it."""
    array = np.empty(shape, dtype)
    array.view(np.uint8)[:] = 0xFF
    return array


def report(name: str, work: Callable[[], object]) -> None:
    if sys.argv[1:] and name not in sys.argv[1:]:
        return
    error = ""
    try:
        work()
    except Exception:  # noqa: BLE001 - the edge of this process: whatever it is, the test shows it
        error = traceback.format_exc()
    print(json.dumps({"name": name, "error": error}), flush=True)


def run_checks() -> None:
    device = Unwritten(_torch_device=CUDA)
    for case in cases.FEW:
        report(checks.name(case), lambda case=case: checks.run(device, case))
    for way in cases.WAYS:
        with way.forced():
            for case in way.few:
                report(cases.name(way, case), lambda case=case: checks.run(device, case))


def forwards_agree() -> None:
    """A chunk both ways, twice, state carried: the same predictions and losses."""
    weights = initial_weights(CONFIG, seed=1)
    ids = np.random.default_rng(1).integers(0, CONFIG.vocabulary, (2, TOKENS + 1)).astype(np.int32)
    devices = observed_devices(CONFIG)
    slow, quick = (
        Pipeline(device, CONFIG, weights, TOKENS, plan(fixes))
        for device, fixes in zip(devices, ((), FIXES), strict=True)
    )
    for chunk in ids:
        expected, result = outcome(devices[0], slow, chunk), outcome(devices[1], quick, chunk)
        same_outcomes(result[1], expected[1])
        assert abs(result[0].loss - expected[0].loss) < 1e-6, f"loss {result[0].loss} is not {expected[0].loss}"


def observed_devices(config: ModelConfig) -> list[Any]:
    return [ObservedDevice(Unwritten(_torch_device=CUDA), config.vocabulary) for _ in range(2)]


def outcome(device: Any, model: Forward, ids: np.ndarray) -> tuple[Result, Outcome]:
    """Run a chunk; what it returns and what it leaves on the device."""
    with device.observing():
        model.submit(ids)
        return model.collect(), device.outcome()


def same_outcomes(result: Outcome, expected: Outcome) -> None:
    """What both runs of a chunk left on the device."""
    checks.equal("predictions", result.predictions, expected.predictions)
    for name in ("state", "results", "logits"):
        checks.close(name, getattr(result, name), getattr(expected, name))


def graphed_chunks_agree() -> None:
    """Chunks replayed from a graph of each place of their ids, and a short one between them that is launched."""
    lengths, devices = (4, 4, 4, 4, 2, 4, 4), observed_devices(CONFIG)
    weights, random = initial_weights(CONFIG, seed=1), np.random.default_rng(1)
    plain, graphed = (
        Pipeline(device, CONFIG, weights, 4, plan(fixes))
        for device, fixes in zip(devices, (FIXES, [*FIXES, "cuda-graph"]), strict=True)
    )
    for number, length in enumerate(lengths):
        ids = random.integers(0, CONFIG.vocabulary, length + 1).astype(np.int32)
        expected = outcome(devices[0], plain, ids)
        before = devices[1].counts().launches
        result = outcome(devices[1], graphed, ids)
        launches = devices[1].counts().launches - before
        assert (launches == 1) == (number in {2, 3, 5, 6}), f"chunk {number}: {launches} launches"
        assert result[0].loss == expected[0].loss, f"chunk {number}"
        same_outcomes(result[1], expected[1])


def graphed_learning_agrees() -> None:
    """Steps replayed from a graph of each place of their ids, and a short one between them: the same bits."""
    config, lengths = ModelConfig(width=3, layers=2, vocabulary=5), (3, 3, 3, 2, 3, 3)
    weights, random = initial_weights(config, seed=1), np.random.default_rng(2)
    devices = [Unwritten(_torch_device=CUDA) for _ in range(2)]
    plain, graphed = (
        LearnChunk(device, config, weights, 3, tile=2, graph=graph)
        for device, graph in zip(devices, (False, True), strict=True)
    )
    for number, length in enumerate(lengths):
        ids = random.integers(0, config.vocabulary, length + 1).astype(np.int32)
        plain.submit(ids)
        before = devices[1].counts().launches
        graphed.submit(ids)
        launches = devices[1].counts().launches - before
        assert (launches == 1) == (number in {2, 4, 5}), f"step {number}: {launches} launches"
        assert graphed.collect() == plain.collect(), f"step {number}"
    for name in Weights.__dataclass_fields__:
        checks.equal(name, getattr(graphed.weights(), name), getattr(plain.weights(), name))


def learning_agrees() -> None:
    """Two steps of learning, state carried: the losses, gradients and weights of the host device."""
    config, tokens = ModelConfig(width=3, layers=2, vocabulary=5), 5
    weights = initial_weights(config, seed=1)
    ids = np.random.default_rng(1).integers(0, config.vocabulary, (2, tokens + 1)).astype(np.int32)
    result, expected = (
        learned(device, config, weights, ids) for device in (Unwritten(_torch_device=CUDA), HostDevice())
    )
    for name, array in expected.items():
        checks.close(name, result[name], array)


def learned(device: Device, config: ModelConfig, weights: Weights, ids: np.ndarray) -> dict[str, np.ndarray]:
    """Losses, and what is left after the last chunk."""
    observed: Any = ObservedDevice(device, config.vocabulary)
    chunk = LearnChunk(observed, config, weights, ids.shape[1] - 1, tile=2)
    losses: list[float] = []
    for row in ids:
        result, left = outcome(observed, chunk, row)
        losses += [result.loss, *left.losses.tolist()]
    remaining = {"weights": chunk.weights(), "gradients": gradients_of(chunk)}
    arrays = {
        f"{kind} {name}": getattr(remaining[kind], name) for kind in remaining for name in Weights.__dataclass_fields__
    }
    device.close()
    return {"losses": np.array(losses, np.float32), **arrays}


def graphs_replay() -> None:
    with next(way for way in cases.WAYS if way.name == "time blocks").forced():
        graphs.replays_are_launches(Unwritten(_torch_device=CUDA), tokens=40, width=3)


def benchmarks_launch() -> None:
    """Every call of `bench_gpu` on kernels, each made once and not timed: their arguments are those of the kernels."""
    gpu_learning.WIDTHS, gpu_learning.GRAPH_LAUNCHES, gpu_learning.STEPS = (2,), 2, 2
    bench_gpu.PEAK_BYTES, bench_gpu.PEAK_SIZE = 1 << 10, 4
    device, ids = Unwritten(_torch_device=CUDA), np.array([1, 4, 1, 0], np.int32)
    data = gpu_learning.Data(CONFIG, initial_weights(CONFIG, seed=0), ids)
    bench_gpu.REPEATS = bench_gpu.REPLAYS = 1
    peaks = bench_gpu.peaks(device)
    before = device.counts().launches
    assert bench_gpu.device_seconds(device, lambda: device.launch(empty.KERNEL), launches=3) > 0
    assert device.counts().launches - before == 3, "one alone, and two replays of a graph"
    bench_gpu.device_seconds = bench_gpu.wall_seconds = once
    rates = bench_gpu.chunk_kernels(device, data, peaks)
    assert {"scan", "scan backward", "adamw", "cross-entropy"} <= set(rates)
    assert rates["layer matmul"]["share_of_tflops"] == rates["layer matmul"]["tflops"] / peaks.tflops
    assert set(gpu_learning.scans_over_width(device, 3, once)["2"]) >= {"forward, serial", "backward, in blocks"}
    assert gpu_learning.graph_costs(device, once)["launches"] == 2
    assert gpu_learning.learning_step(device, data)["syncs"] == 1
    bench_gpu.token_kernels(device, CONFIG)


def once(device: CudaDevice, work: Callable[[], object], calls: int = 0) -> float:
    work()
    return 1.0


def empty_kernels_launch_once() -> None:
    """Every launch is one empty kernel, whatever the real one would have launched."""
    device = Unwritten(_torch_device=CUDA, empty_kernels=True)
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
    report("graphed learning", graphed_learning_agrees)
    report("graph", graphs_replay)
    report("benchmarks", benchmarks_launch)
    report("empty", empty_kernels_launch_once)
