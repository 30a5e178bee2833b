"""The learning step against plain PyTorch: loss, gradients, AdamW over many steps; and what it asks of the device."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from reference_trainer.devices.host import HostDevice
from reference_trainer.lm.learn_chunk import LearnChunk
from reference_trainer.lm.model import ModelConfig, Weights, initial_weights
from reference_trainer.lm.optimizer import Optimizer
from reference_trainer.lm.parameters import unflatten
from reference_trainer.lm.result import Result
from tests.reference_trainer.lm.learning_reference import NAMES, LearningReference

STILL = Optimizer(rate=0)  # gradients of the same weights, chunk after chunk
QUICK = Optimizer(rate=0.01, warmup=5, total=15, least=0.1, weight_decay=0.3, largest_norm=1.7)


@dataclass(frozen=True)
class Case:
    """A model, the lengths of its chunks, and how many tokens a tile of logits has."""

    config: ModelConfig
    lengths: tuple[int, ...]
    tile: int

    def weights(self) -> Weights:
        """Random ones, biases too: initial ones are 0 in places, where a mistake could hide."""
        random = np.random.default_rng(1)
        initial = initial_weights(self.config, seed=0)
        return replace(
            initial,
            bias=initial.bias + random.standard_normal(initial.bias.shape, np.float32),
            decoder_bias=random.standard_normal(self.config.vocabulary, np.float32),
        )

    def chunks(self) -> list[np.ndarray]:
        random = np.random.default_rng(2)
        return [random.integers(0, self.config.vocabulary, length + 1).astype(np.int32) for length in self.lengths]

    def both(self, device: HostDevice, settings: Optimizer) -> tuple[LearnChunk, LearningReference]:
        weights = self.weights()
        ours = LearnChunk(device, self.config, weights, max(self.lengths), optimizer=settings, tile=self.tile)
        return ours, LearningReference(self.config, weights, settings)


CASES = {
    "one tile": Case(ModelConfig(width=32, layers=2, vocabulary=256), (40, 40), tile=64),
    "one token": Case(ModelConfig(width=6, layers=2, vocabulary=11), (1, 1, 1), tile=1),
    "no multiple of a tile": Case(ModelConfig(width=16, layers=3, vocabulary=31), (33, 1, 17, 16, 32), tile=16),
    "odd sizes": Case(ModelConfig(width=37, layers=3, vocabulary=101), (23, 30), tile=7),
    "one channel": Case(ModelConfig(width=1, layers=1, vocabulary=3), (20, 20), tile=8),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def test_a_step_on_views_makes_no_array_of_them() -> None:
    """It learns what a submitted chunk teaches, from 16-bit ids, and NumPy allocates less than these ids take."""
    case, device = Case(ModelConfig(width=4, layers=1, vocabulary=11), (60_000,), tile=64), HostDevice()
    (ids,) = case.chunks()
    mapped = ids.astype("<u2")
    model, other = (LearnChunk(device, case.config, case.weights(), 60_000) for _ in range(2))
    first = model.train_step_zero_copy(mapped[:-1], mapped[1:])
    before = device.counts()
    tracemalloc.start()
    second = model.train_step_zero_copy(mapped[:-1], mapped[1:])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < mapped.nbytes
    after = device.counts()
    counted = ("syncs", "h2d", "d2h", "allocations")
    assert [getattr(after, name) - getattr(before, name) for name in counted] == [1, 1, 1, 0]
    expected = [learn(other, ids) for _ in range(2)]
    assert [first, second] == [(result.loss, result.accuracy) for result in expected]
    with pytest.raises(ValueError, match="a target is not the input after it"):
        model.train_step_zero_copy(mapped[:-1], mapped[:-1])
    model.submit(ids)
    with pytest.raises(RuntimeError, match="chunks are in flight"):
        model.train_step_zero_copy(mapped[:-1], mapped[1:])
    device.close()


def learn(model: LearnChunk, ids: np.ndarray) -> Result:
    """One step."""
    model.submit(ids)
    return model.collect()


def gradients_of(model: LearnChunk) -> Weights:
    """The gradients of the chunk that was submitted last, in the shape of weights."""
    parameters = model._parameters
    return unflatten(model._device.download(parameters.flat_gradients), parameters.layout)


def close(what: str, result: Any, expected: Any, tolerance: float) -> None:
    """Fail where they differ by more than `tolerance` of the largest."""
    error = np.max(np.abs(np.asarray(result, np.float64) - expected)) / max(np.max(np.abs(expected)), 1e-30)
    assert error <= tolerance, f"{what} is off by {error:.2g}"


def compare_gradients(device: HostDevice, case: Case, tolerance: float) -> None:
    """Compare all gradients, with the state carried over chunks; the tolerance is a share of the largest."""
    ours, reference = case.both(device, STILL)
    for number, ids in enumerate(case.chunks()):
        result, expected = learn(ours, ids), reference.step(ids)
        close(f"chunk {number}: loss", result.loss, expected.loss, tolerance)
        assert result.accuracy == pytest.approx(expected.accuracy, abs=1e-6)
        assert result.tokens == result.covers == len(ids) - 1
        close(f"chunk {number}: norm", result.rates["gradient_norm"], expected.norm, tolerance)
        gradients = gradients_of(ours)
        for name in NAMES:
            what = f"chunk {number}: gradient of {name}"
            close(what, getattr(gradients, name), expected.gradients[name], tolerance)


@each_case
def test_gradients(device: HostDevice, case: Case) -> None:
    compare_gradients(device, case, 1e-5)


def test_twenty_steps(device: HostDevice) -> None:
    """Warm-up, decay and the rest, clipped in some steps and not in others: weights as torch's AdamW has them."""
    case = Case(ModelConfig(width=8, layers=2, vocabulary=13), (20,) * 20, tile=8)
    ours, reference = case.both(device, QUICK)
    norms = []
    for number, ids in enumerate(case.chunks()):
        result, expected = learn(ours, ids), reference.step(ids)
        close(f"step {number}: loss", result.loss, expected.loss, 1e-5)
        close(f"step {number}: learning rate", result.rates["learning_rate"], expected.rate, 1e-5)
        norms.append(result.rates["gradient_norm"])
    assert min(norms) < QUICK.largest_norm < max(norms), f"clipping was not tested both ways: {norms}"
    weights = ours.weights()
    for name in NAMES:
        close(name, getattr(weights, name), reference.parameters[name].detach().numpy(), 1e-5)


def test_evaluation(device: HostDevice) -> None:
    """As the reference judges, and as if it had not been: the next step is the same."""
    case = CASES["no multiple of a tile"]
    ours, reference = case.both(device, QUICK)
    *chunks, last = case.chunks()
    for ids in chunks:
        learn(ours, ids)
        reference.step(ids)
    result, (loss, accuracy) = ours.evaluate(chunks[:3]), reference.judge(chunks[:3])
    close("loss", result.loss, loss, 1e-5)
    assert result.accuracy == pytest.approx(accuracy, abs=1e-5)
    assert result.tokens == sum(len(ids) - 1 for ids in chunks[:3])
    close("loss afterwards", learn(ours, last).loss, reference.step(last).loss, 1e-5)


def test_what_a_step_asks_of_the_device(device: HostDevice) -> None:
    """Steps in flight two at a time: one sync, one upload and one download each, nothing allocated."""
    case = CASES["one tile"]
    ours, _ = case.both(device, QUICK)
    ids = case.chunks()[0]
    ours.submit(ids)
    before, steps = device.counts(), 5
    for _ in range(steps):
        learn(ours, ids)
    after = device.counts()
    assert after.syncs - before.syncs == steps
    assert (after.h2d - before.h2d, after.d2h - before.d2h) == (steps, steps)
    assert after.allocations == before.allocations
    ours.submit(ids)
    with pytest.raises(RuntimeError, match="collect one"):
        ours.submit(ids)


@pytest.mark.parametrize("length", [0, 41])
def test_chunks_that_do_not_fit(device: HostDevice, length: int) -> None:
    ours, _ = CASES["one tile"].both(device, QUICK)
    ids = np.zeros(length + 1, np.int32)
    for call in (ours.submit, lambda chunk: ours.evaluate([chunk])):
        with pytest.raises(ValueError, match=f"{length} predictions in a chunk, there must be 1 to 40"):
            call(ids)


def test_logits_take_a_tile_of_memory(device: HostDevice) -> None:
    """Where all logits of a chunk would take more than everything else does."""
    config, capacity, tile = ModelConfig(width=2, layers=1, vocabulary=2003), 1024, 16
    complete = capacity * config.vocabulary * 4
    before = device.reserved_bytes
    ours = LearnChunk(device, config, initial_weights(config, seed=0), capacity, tile=tile)
    learn(ours, np.zeros(capacity + 1, np.int32))
    used = device.reserved_bytes - before
    assert used < 0.15 * complete, f"{used} bytes; all logits are {complete}"


def test_two_in_flight_learn_the_same(device: HostDevice) -> None:
    """Submitted ahead or one by one: the same results, to the last bit."""
    case = CASES["no multiple of a tile"]
    ahead, one_by_one = (case.both(device, QUICK)[0] for _ in range(2))
    chunks, results = case.chunks(), []
    expected = [learn(one_by_one, ids) for ids in chunks]
    for number, ids in enumerate(chunks):
        ahead.submit(ids)
        if number:
            results.append(ahead.collect())
    results.append(ahead.collect())
    assert results == expected
    assert np.array_equal(ahead.weights().decoder, one_by_one.weights().decoder)


def test_the_buffers_of_a_checkpoint_are_all_that_a_step_depends_on(device: HostDevice) -> None:
    """The buffers of `everything`, copied into a fresh model: the same step follows."""
    case = CASES["one tile"]
    first, second = (case.both(device, QUICK)[0] for _ in range(2))
    ids = case.chunks()[0]
    for _ in range(3):
        learn(first, ids)
    for name, buffer in first.everything().items():
        device.upload_into(second.everything()[name], device.download(buffer))
    assert learn(first, ids) == learn(second, ids)
    assert np.array_equal(first.weights().decoder, second.weights().decoder)


def test_it_learns(device: HostDevice) -> None:
    """A text that repeats itself is known by heart after some hundred steps, and so is text not seen before like it."""
    config, length = ModelConfig(width=16, layers=2, vocabulary=8), 64
    period = np.array([0, 1, 2, 1, 3, 1, 2, 4, 5, 6, 5, 7], np.int32)  # what follows 1, 2 and 5 hangs on the past
    text = np.resize(period, 8 * length + 1)
    ours = LearnChunk(device, config, initial_weights(config, seed=0), length, optimizer=Optimizer(total=300))
    before = ours.evaluate([text[: length + 1]])
    for step in range(300):
        begin = step % 7 * length
        learn(ours, text[begin : begin + length + 1])
    after = ours.evaluate([text[: length + 1]])
    assert before.loss is not None
    assert before.loss > 1.5
    assert after.loss is not None
    assert after.loss < 0.1 * before.loss, f"{before.loss} -> {after.loss}"
