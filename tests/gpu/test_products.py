"""Products in TF32 and bf16 on a real GPU: the model stays as near to fp64 as the host device does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from reference_trainer.devices.cuda import CudaDevice
from tests.reference_trainer.kernels.test_products import LOW, check_forward, check_gradients

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _without_tf32() -> Iterator[None]:
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize("dtype", LOW)
def test_the_model_against_fp64(dtype: str) -> None:
    for check in (check_forward, check_gradients):
        device = CudaDevice(products=dtype)
        check(device, dtype)
        device.close()
