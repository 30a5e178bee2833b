"""The learning step on the host device beside its matrix products alone, and beside PyTorch on one thread.

All in one process, round after round in changing order; ratios over the rounds. PyTorch's rows: its own products of the
same sizes, and whole steps with the recurrence as a loop, by its associative scan (as it is, and compiled).
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from reference_trainer.devices.host import HostDevice
from reference_trainer.kernels.matmul import TRANSPOSE_A, sizes
from reference_trainer.lm.learn_chunk import LearnChunk
from reference_trainer.lm.model import ModelConfig, initial_weights, preset
from tests.benchmarks.measure import ratio
from tests.benchmarks.torch_language_models import Layers, Trainer, associative, loop

ROUNDS = int(os.environ.get("ROUNDS", "9"))
TOKENS = 3000
MOST = 1.5  # times the products alone, at preset small
EACH = 0.05  # seconds of steps that a measurement takes, at least

Step = Callable[[], object]
Product = tuple[Any, ...]


def products_of(device: HostDevice, step: Step) -> list[Product]:
    """The arguments of every `matmul` of a step, in order."""
    found: list[Product] = []
    matmul = device.matmul
    device.matmul = lambda *arguments: found.append(arguments) or matmul(*arguments)  # type: ignore[method-assign, func-returns-value]
    step()
    device.matmul = matmul  # type: ignore[method-assign]
    return found


def again(device: HostDevice, products: list[Product]) -> Step:
    """The products alone, with the buffers of the step."""

    def run() -> None:
        for arguments in products:
            device.matmul(*arguments)
        device.synchronize()

    return run


def by_torch(products: list[Product]) -> Step:
    """Products of the same sizes, factors transposed likewise, by torch."""
    calls = []
    for _, a, b, rows, *flags in products:
        m, k, n = sizes(a.shape, b.shape, rows, *flags or [0])
        left = torch.randn(k, m).t() if sum(flags) & TRANSPOSE_A else torch.randn(m, k)
        right = torch.randn(n, k).t() if sum(flags) & 2 else torch.randn(k, n)
        calls.append((left, right, torch.empty(m, n)))

    def run() -> None:
        for left, right, out in calls:
            torch.mm(left, right, out=out)

    return run


@contextmanager
def contestants(config: ModelConfig) -> Iterator[dict[str, Step]]:
    """What is timed, by name; torch's rows that cannot run here are said and left out."""
    ids = np.random.default_rng(0).integers(0, config.vocabulary, TOKENS + 1).astype(np.int32)
    device = HostDevice(blocking_wait=True)  # spinning would take a core from whoever else runs
    model = LearnChunk(device, config, initial_weights(config, seed=0), TOKENS)

    def ours() -> None:
        model.submit(ids)
        model.collect()

    ours()
    products = products_of(device, ours)
    steps: dict[str, Step] = {
        "ours": ours,
        "products alone": again(device, products),
        "torch, products": by_torch(products),
    }
    trainers = {
        "torch, associative scan": lambda: Trainer(config, Layers(config, associative)),
        "torch, compiled scan": lambda: Trainer(config, Layers(config, associative), compiled=True),
        "torch, loop": lambda: Trainer(config, Layers(config, loop)),
    }
    for name, make in trainers.items():
        trainer = make()
        try:
            trainer.step(ids)
        except (RuntimeError, ImportError, AttributeError) as error:  # needs a newer torch, or a compiler
            print(f"{name}: does not run here: {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        steps[name] = lambda trainer=trainer: trainer.step(ids)
    yield steps
    device.close()


def seconds(step: Step) -> float:
    """Time of one step, of as many as fill EACH."""
    began, count = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < EACH:
        step()
        count += 1
    return took / count


@pytest.mark.parametrize("name", ["small", "tiny"])
def test_costs(name: str) -> None:
    """Time of each kernel of a step by the device's own clock, each run alone; medians over the rounds."""
    config, device = preset(name), HostDevice(blocking_wait=True)
    ids = np.random.default_rng(0).integers(0, config.vocabulary, TOKENS + 1).astype(np.int32)
    model = LearnChunk(device, config, initial_weights(config, seed=0), TOKENS)
    rounds: list[dict[str, int]] = []

    def timed(call: Callable[..., None], kernel: str = "") -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            device.synchronize()
            before = device.counts().busy_ns
            call(*arguments)
            device.synchronize()
            each = kernel or arguments[0].name
            rounds[-1][each] = rounds[-1].get(each, 0) + device.counts().busy_ns - before

        return run

    device.launch, device.matmul = timed(device.launch), timed(device.matmul, "matrix products")  # type: ignore[method-assign]
    for _ in range(2 + 3 * ROUNDS):
        rounds.append({})
        model.submit(ids)
        model.collect()
    device.close()
    taken = {each: statistics.median(one[each] for one in rounds[2:]) for each in rounds[0]}
    total = sum(taken.values())
    print(f"\npreset {name}, {TOKENS} tokens: {total / 1e6:.2f} ms on the device")
    for each, spent in sorted(taken.items(), key=lambda pair: -pair[1]):
        print(f"{each:24s} {spent / 1e6:8.3f} ms {spent / total:6.1%}")
    assert set(taken) > {"matrix products", "cross-entropy", "adamw", "scan backward"}


@pytest.mark.parametrize("name", ["small", "tiny"])
def test_step(name: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    order = random.Random(0)
    with contestants(preset(name)) as steps:
        blas = {info["architecture"] for info in threadpool_info() if info["internal_api"] == "openblas"}
        print(f"\npreset {name}, {TOKENS} tokens, {ROUNDS} rounds, BLAS kernels for {', '.join(blas)}")
        times: dict[str, list[float]] = {each: [] for each in steps}
        for step in steps.values():
            seconds(step)
        for _ in range(ROUNDS):
            for each in order.sample(list(steps), len(steps)):
                times[each].append(seconds(steps[each]))
    for each, taken in times.items():
        beside = "" if each == "ours" else f", ours / it {ratio(times['ours'], taken)}"
        print(f"{each:24s} {statistics.median(taken) * 1e3:8.2f} ms{beside}")
    for each, taken in times.items():
        if each not in ("ours", "products alone", "torch, products"):
            seen = ratio(times["ours"], taken)
            assert seen.high < 1, f"{each} is as fast: {seen}"
    if name == "small":
        seen = ratio(times["ours"], times["products alone"])
        assert seen.value <= MOST, f"{seen} times the products alone"
