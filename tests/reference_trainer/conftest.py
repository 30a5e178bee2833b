"""A host device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from reference_trainer.devices.host import HostDevice


@pytest.fixture(scope="module")
def device() -> Iterator[HostDevice]:
    with closing(HostDevice()) as opened:
        yield opened
