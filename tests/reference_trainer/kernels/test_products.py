"""Matrix products with inputs in TF32 and bf16: their rounding, and how far from fp64 it leads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from reference_trainer.devices.cuda import CudaDevice
from reference_trainer.devices.host import HostDevice
from reference_trainer.devices.protocol import Device
from reference_trainer.errors import TrainerError
from reference_trainer.kernels.matmul import ACCUMULATE, DROPPED_BITS, TRANSPOSE_A, TRANSPOSE_B, round_mantissas
from reference_trainer.lm.job import prepare
from reference_trainer.lm.model import ModelConfig
from reference_trainer.lm.optimizer import Optimizer
from reference_trainer.lm.pipeline import Pipeline
from reference_trainer.lm.plan import plan, variant_fixes
from reference_trainer.lm.settings import Settings
from tests.reference_trainer.lm.equivalence import TINY, Case, predictions
from tests.reference_trainer.lm.reference import ReferenceModel
from tests.reference_trainer.lm.test_learn_chunk import Case as LearningCase
from tests.reference_trainer.lm.test_learn_chunk import gradients_of

ROUNDOFF = {"tf32": 2.0**-11, "bf16": 2.0**-8 / 2}
"""Largest relative error of a rounded number: half of its last bit."""
LOW = tuple(ROUNDOFF)
FLAGS = (0, TRANSPOSE_A, TRANSPOSE_B, ACCUMULATE, TRANSPOSE_A | ACCUMULATE, TRANSPOSE_B | ACCUMULATE)


def rounded(numbers: np.ndarray, dtype: str) -> np.ndarray:
    numbers, result = np.ascontiguousarray(numbers), np.empty_like(numbers)
    round_mantissas(result.ctypes.data, numbers.ctypes.data, numbers.size, DROPPED_BITS[dtype])
    return result


@contextmanager
def opened(device: Device) -> Iterator[Device]:
    yield device
    device.close()


def test_rounding_is_that_of_torch_and_of_arithmetic() -> None:
    random = np.random.default_rng(0)
    patterns = random.integers(0, 1 << 32, 100_000, dtype=np.uint32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 3.4e38, 1e-45], np.float32)
    numbers = np.concatenate([patterns.view(np.float32), special])
    expected = torch.from_numpy(numbers.copy()).bfloat16().float().numpy()
    assert np.array_equal(rounded(numbers, "bf16"), expected, equal_nan=True)
    normal = random.standard_normal(100_000).astype(np.float32)
    mantissas, exponents = np.frexp(normal.astype(np.float64))
    assert np.array_equal(rounded(normal, "tf32"), np.ldexp(np.rint(mantissas * 2**11) / 2**11, exponents))
    assert np.isnan(rounded(np.full(3, np.nan, np.float32), "tf32")).all()


def product(device: Device, a: np.ndarray, b: np.ndarray, out: np.ndarray, rows: int, flags: int) -> np.ndarray:
    target = device.upload(out)
    device.matmul(target, device.upload(a), device.upload(b), rows, flags)
    return device.download(target)


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("flags", FLAGS)
def test_products_against_fp64(dtype: str, flags: int) -> None:
    """A product equals that of the rounded inputs up to the rounding of sums in fp32, and that of the given inputs up
    to twice the roundoff of an input."""
    random, rows, inner, columns = np.random.default_rng(flags), 33, 70, 12
    shapes = {
        TRANSPOSE_A: ((rows, inner), (rows, columns), (inner, columns)),
        TRANSPOSE_B: ((rows, inner), (columns, inner), (rows, columns)),
        0: ((rows, inner), (inner, columns), (rows, columns)),
    }[flags & ~ACCUMULATE]
    a, b, out = (random.standard_normal(shape, np.float32) for shape in shapes)

    def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        first = a.T if flags & TRANSPOSE_A else a
        second = b.T if flags & TRANSPOSE_B else b
        result = first.astype(np.float64) @ second.astype(np.float64)
        return result + out if flags & ACCUMULATE else result

    devices: list[Callable[[], Device]] = [lambda: HostDevice(products=dtype)]
    if dtype == "bf16":
        devices.append(lambda: CudaDevice(products=dtype, _torch_device="cpu"))
    for make in devices:
        with opened(make()) as device:
            found = product(device, a, b, out, rows, flags)
        sums = exact(np.abs(a), np.abs(b)) + 1
        assert np.all(np.abs(found - exact(rounded(a, dtype), rounded(b, dtype))) <= 1e-6 * sums)
        error = np.abs(found - exact(a, b))
        assert np.all(error <= 2.1 * ROUNDOFF[dtype] * sums)
        assert error.max() > 0.05 * ROUNDOFF[dtype], "nothing was rounded"


def test_rounding_takes_no_memory_that_a_product_in_the_queue_still_reads() -> None:
    """Products of growing and shrinking size, one after the other, without a wait between them."""
    random = np.random.default_rng(3)
    with opened(HostDevice(products="bf16")) as device:
        for _ in range(20):
            sizes = random.integers(1, 120, 8)
            pairs = [[random.standard_normal((n, n), np.float32) for _ in range(2)] for n in sizes]
            outs = [device.zeros((int(n), int(n))) for n in sizes]
            for n, out, (a, b) in zip(sizes, outs, pairs, strict=True):
                device.matmul(out, device.upload(a), device.upload(b), int(n))
            for out, (a, b) in zip(outs, pairs, strict=True):
                expected = rounded(a, "bf16").astype(np.float64) @ rounded(b, "bf16")
                assert np.abs(device.download(out) - expected).max() < 1e-4


FIXED = plan(name for name in variant_fixes("fixed", "host") if name != "quiet-logging")
STATE = {"tf32": 2e-3, "bf16": 2e-2}
"""Largest error of the carried state after three chunks, over the largest state: a few roundoffs of the inputs."""
GRADIENTS = {"tf32": 5e-3, "bf16": 4e-2}
"""Largest error of a gradient, over the largest gradient of that parameter."""


def check_forward(device: Device, dtype: str) -> float:
    """The state stays near that of fp64, and few predictions differ: where the best two logits are nearly equal.

    Returns the error of the state.
    """
    case = Case(ModelConfig(width=64, layers=2, vocabulary=256), (120, 120, 120))
    model, different = ReferenceModel(case.config, case.weights()), []
    forward = Pipeline(device, case.config, case.weights(), 120, FIXED)
    for ids in case.chunks():
        expected = model.chunk(ids)
        forward.submit(ids)
        forward.collect()
        different.append(np.mean(predictions(forward) != expected.predictions))
    error = np.abs(device.download(forward._work.state) - model.state).max() / np.abs(model.state).max()
    assert error < STATE[dtype]
    assert np.mean(different) <= 10 * ROUNDOFF[dtype]
    return float(error)


def check_gradients(device: Device, dtype: str) -> float:
    """The loss and all gradients of a first step stay near those of fp64; returns the largest error of a gradient."""
    case = LearningCase(TINY, (60,), tile=32)
    learner, reference = case.both(device, Optimizer())
    [ids] = case.chunks()
    expected = reference.step(ids)
    learner.submit(ids)
    result, gradients = learner.collect(), gradients_of(learner)
    assert result.loss == pytest.approx(expected.loss, rel=GRADIENTS[dtype])
    errors = {
        name: np.abs(getattr(gradients, name) - gradient).max() / np.abs(gradient).max()
        for name, gradient in expected.gradients.items()
    }
    assert max(errors.values()) < GRADIENTS[dtype], errors
    return float(max(errors.values()))


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("check", [check_forward, check_gradients])
def test_the_model_against_fp64(check: Callable[[Device, str], float], dtype: str) -> None:
    with opened(HostDevice(products=dtype)) as device:
        assert check(device, dtype) > 1e-5, "nothing was rounded"


def test_what_a_dtype_is_for() -> None:
    fixed = Settings(device="host", variant="fixed", dtype="bf16", tokens_per_chunk=400)
    assert prepare(fixed).settings.stated_dtype == "float32 with bf16 products"
    for fixes in ((), ("batch-recurrence",)):
        with pytest.raises(TrainerError, match=r"--dtype bf16 is for products of whole chunks"):
            prepare(Settings(device="host", fixes=fixes, dtype="bf16"))
    with pytest.raises(TrainerError, match="--dtype fp16: choose one of fp32, tf32, bf16"):
        Settings(dtype="fp16")
    assert len({Settings(dtype=dtype).stated_dtype for dtype in ("fp32", *LOW)}) == 3
    assert list(itertools.chain(["fp32"], LOW)) == list(DROPPED_BITS)
