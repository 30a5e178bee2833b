"""Every CUDA kernel against NumPy in float64, on a real GPU: many shapes, real ones, and every way that it may go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reference_trainer.devices.cuda import CudaDevice
from tests.reference_trainer.kernels import cases, checks, graphs

pytestmark = pytest.mark.gpu

FORCED = [(way, case) for way in cases.WAYS for case in way.many]


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    """One for all: kernels know nothing of how the host waits."""
    opened = CudaDevice()
    yield opened
    opened.close()


@pytest.mark.parametrize("case", [*cases.MANY, *cases.LARGE], ids=checks.name)
def test_against_float64(device: CudaDevice, case: cases.Case) -> None:
    checks.run(device, case)


@pytest.mark.parametrize(("way", "case"), FORCED, ids=[cases.name(*pair) for pair in FORCED])
def test_forced(device: CudaDevice, way: cases.Way, case: cases.Case) -> None:
    with way.forced():
        checks.run(device, case)


@pytest.mark.parametrize(("tokens", "width"), [(40, 3), (3000, 256), (3000, 4096)])
def test_graphs(device: CudaDevice, tokens: int, width: int) -> None:
    graphs.replays_are_launches(device, tokens, width)
