"""A CUDA device for the tests of this folder, which skip with the reason where there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reference_trainer.devices import cuda
from reference_trainer.devices.cuda import CudaDevice


@pytest.fixture(scope="session", autouse=True)
def _gpu() -> None:
    if reason := cuda.unavailable():
        pytest.skip(reason)


@pytest.fixture(params=[{}, {"blocking_wait": True}], ids=["spin", "block"])
def device(request: pytest.FixtureRequest) -> Iterator[CudaDevice]:
    opened = CudaDevice(**request.param)
    yield opened
    opened.close()
