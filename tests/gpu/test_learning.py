"""The learning step on a real GPU: gradients against plain PyTorch, the same bits twice, nothing that blocks."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from reference_trainer.devices.cuda import CudaDevice
from reference_trainer.lm.learn_chunk import LearnChunk
from reference_trainer.lm.model import ModelConfig, initial_weights
from tests.gpu.test_device import is_busy, no_sync
from tests.reference_trainer.lm.test_learn_chunk import CASES, QUICK, Case, compare_gradients

pytestmark = pytest.mark.gpu

REAL = Case(ModelConfig(width=256, layers=2, vocabulary=4096), (700, 77), tile=256)
LARGE = Case(ModelConfig(width=2048, layers=4, vocabulary=4096), (3000,), tile=1024)


@pytest.mark.parametrize("case", [*CASES.values(), REAL], ids=[*CASES, "real"])
def test_gradients(device: CudaDevice, case: Case) -> None:
    compare_gradients(device, case, 1e-4)


def test_twice_the_same_bits(device: CudaDevice) -> None:
    """Sums are taken in a fixed order: a run that is resumed must give what the whole one gave."""
    weights = []
    for _ in range(2):
        learner, _ = REAL.both(device, QUICK)
        for ids in REAL.chunks() * 3:
            learner.submit(ids)
            learner.collect()
        weights.append(learner.weights())
    for name in ("embedding", "layer", "bias", "readout", "decoder", "decoder_bias"):
        first, second = (getattr(each, name) for each in weights)
        assert np.array_equal(first, second), f"{name}: {np.count_nonzero(first != second)} numbers differ"


def test_replayed_steps_learn_the_same(device: CudaDevice) -> None:
    """Six full steps, of which four are replayed, and a shorter one between them that is launched."""
    ids = [chunk for _ in range(3) for chunk in (*REAL.chunks()[:1] * 2, REAL.chunks()[1])]
    results = []
    for graph in (False, True):
        learner = LearnChunk(
            device, REAL.config, initial_weights(REAL.config, 0), 700, optimizer=QUICK, tile=256, graph=graph
        )
        losses = []
        for chunk in ids:
            learner.submit(chunk)
            losses.append(learner.collect().loss)
        results.append((losses, learner.weights().decoder))
    (plain, weights), (graphed, graphed_weights) = results
    assert np.allclose(graphed, plain, rtol=1e-5)
    assert np.allclose(graphed_weights, weights, atol=1e-4 * np.abs(weights).max())


def test_a_step_is_submitted_without_a_sync_and_takes_no_memory(device: CudaDevice) -> None:
    learner, _ = LARGE.both(device, QUICK)
    (ids,) = LARGE.chunks()
    for _ in range(2):  # the first compiles, fills the pools and makes cuBLAS's handle
        learner.submit(ids)
        learner.collect()
    gc.collect()
    counts, memory = device.counts(), torch.cuda.memory_stats()
    with no_sync():
        learner.submit(ids)
    assert is_busy(), "submit() came back only when the device had finished"
    learner.collect()
    after, memory_after = device.counts(), torch.cuda.memory_stats()
    assert after.syncs - counts.syncs == 1
    assert (after.h2d - counts.h2d, after.d2h - counts.d2h) == (1, 1)
    assert after.allocations == counts.allocations
    for name in ("allocation.all.allocated", "segment.all.allocated", "reserved_bytes.all.current"):
        assert memory_after[name] == memory[name], f"{name} went from {memory[name]} to {memory_after[name]}"
