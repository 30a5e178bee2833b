"""Runs the trainer's CUDA device on a virtual GPU: torch.cuda's part as on a real one, kernels in Numba's simulator.

A program of its own: NUMBA_ENABLE_CUDASIM=1 must be set before Numba is imported. Prints a JSON line a check.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest import mock

import numpy as np
import torch

from profiler.exact import virtual_cuda
from profiler.exact.model import Counts, EventKind
from reference_trainer.devices import cuda
from reference_trainer.lm.model import initial_weights
from reference_trainer.lm.pipeline import Pipeline
from reference_trainer.lm.plan import Plan, plan
from reference_trainer.lm.settings import Settings
from reference_trainer.ssm import plan as ssm_plan
from reference_trainer.ssm.group_work import do_jobs
from reference_trainer.ssm.kernels import launch
from reference_trainer.ssm.problem import GD, GNC
from tests.benchmarks import bench_gpu, gpu_learning
from tests.reference_trainer.devices import sequences
from tests.reference_trainer.kernels import simulate
from tests.reference_trainer.ssm import test_methods
from tests.reference_trainer.ssm.method_reference import reference


@contextmanager
def virtual_gpu() -> Iterator[Counts]:
    """A virtual GPU whose kernels run in the simulator, which has no streams and captures nothing."""
    with virtual_cuda() as counts, mock.patch.object(simulate, "CUDA", "cuda"):
        yield counts


def sequences_run() -> None:
    """Everything that is asked of a device."""
    for options in ({}, {"blocking_wait": True}):
        with virtual_gpu():
            for ask in sequences.EVERYTHING:
                device = cuda.CudaDevice(**options)
                ask(device)
                device.close()


def waits_and_copies_are_those_that_the_device_counts() -> None:
    """Both loops of the language model: the slow one waits for each token, the fast one once a chunk."""
    weights = initial_weights(simulate.CONFIG, seed=1)
    ids = np.random.default_rng(1).integers(0, simulate.CONFIG.vocabulary, (2, 5)).astype(np.int32)
    losses = []
    for chosen in (Plan(), plan(simulate.FIXES)):
        with virtual_gpu() as counts:
            device = cuda.CudaDevice()
            assert device.label == "NVIDIA H100 80GB HBM3"
            pipeline = Pipeline(device, simulate.CONFIG, weights, 4, chosen)
            for chunk in ids:
                before = device.counts()
                counts.clear()
                pipeline.submit(chunk)
                loss = pipeline.collect().loss
                after = device.counts()
                assert counts.syncs == after.syncs - before.syncs, f"{counts.syncs} waits: {counts.sites()}"
                for kind, name in ((EventKind.HOST_TO_DEVICE, "h2d"), (EventKind.DEVICE_TO_HOST, "d2h")):
                    expected = getattr(after, f"{name}_bytes") - getattr(before, f"{name}_bytes")
                    assert counts.bytes(kind) == expected, f"{name}: {counts.bytes(kind)} bytes, not {expected}"
            losses.append(loss)
            device.close()
    assert abs(losses[0] - losses[1]) < 1e-6


def learning_agrees() -> None:
    """Learning on the virtual GPU has the losses, gradients and weights of the host device."""
    with virtual_gpu():
        simulate.learning_agrees()


def graphed_chunks_agree() -> None:
    """Chunks that are replayed from a graph."""
    with virtual_gpu():
        simulate.graphed_chunks_agree()


def the_benchmark_runs_to_its_end() -> None:
    """The whole of bench_gpu, at its smallest size: every part has figures."""
    gpu_learning.WIDTHS, gpu_learning.GRAPH_LAUNCHES, gpu_learning.STEPS = (2,), 2, 2
    bench_gpu.PEAK_BYTES, bench_gpu.PEAK_SIZE = 1 << 10, 4
    bench_gpu.REPEATS = bench_gpu.REPLAYS = bench_gpu.LAUNCHES = 1
    bench_gpu.wall_seconds = simulate.once
    bench_gpu.Settings = partial(Settings, tokens_per_chunk=2, max_chunks=1, warmup_seconds=0)
    known = bench_gpu.variants()
    bench_gpu.variants = lambda: {name: known[name] for name in ("as-found", "fixed, graph")}
    with virtual_gpu():
        text = bench_gpu.first_chunk("tiny")
        assert text.tokens == 2
        weights = initial_weights(simulate.CONFIG, seed=0)
        bench_gpu.first_chunk = lambda _: gpu_learning.Data(simulate.CONFIG, weights, text.ids % 11)
        bench_gpu.ModelConfig = lambda *_: simulate.CONFIG
        found = dict(bench_gpu.measure("tiny", 0.1))
    kernels = "preset", "modeled, not measured", "peaks", "chunk", "learning step", "graph", "calls"
    assert list(found) == ["environment", *kernels, "variants", "scan", "token at preset", "token"]
    assert all(found.values())
    assert {figures["tokens"] for figures in found["variants"].values()} == {2}


def the_sweep_agrees() -> None:
    """Jobs of a sweep, as found and with all cures, have the results of the fp64 reference."""

    def array(tensor: torch.Tensor) -> object:
        with torch._C.DisableTorchFunction():
            return launch._simulated(tensor)

    with virtual_gpu(), mock.patch.multiple(launch, _array=array, numba_stream=lambda _: 0):
        for method in (GD, GNC):
            (job,) = test_methods.jobs(method)[:1]
            expected = [reference(job, test_methods.SMALL)]
            for chosen in (ssm_plan.Plan(), test_methods.ALL):
                outcomes = do_jobs([job], test_methods.SMALL, chosen, "cuda:0")
                test_methods.same([outcome.fit for outcome in outcomes], expected)


CHECKS = {
    "sequences": sequences_run,
    "counts": waits_and_copies_are_those_that_the_device_counts,
    "learning": learning_agrees,
    "graphed chunks": graphed_chunks_agree,
    "benchmark": the_benchmark_runs_to_its_end,
    "sweep": the_sweep_agrees,
}

if __name__ == "__main__":
    simulate.hasten()
    for name, check in CHECKS.items():
        simulate.report(name, check)
