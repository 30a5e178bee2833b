"""The kernels of the host device against NumPy in float64."""

from __future__ import annotations

import pytest

from reference_trainer.devices.host import HostDevice
from tests.reference_trainer.kernels import cases, checks


@pytest.mark.parametrize("case", cases.MANY, ids=checks.name)
def test_against_float64(device: HostDevice, case: tuple[checks.Check, int, int]) -> None:
    checks.run(device, case)
