"""Fixtures of several tests of exact counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from profiler.exact import virtual_cuda
from profiler.exact.model import Counts


@pytest.fixture
def counts() -> Iterator[Counts]:
    """Two virtual devices, and what is counted on them."""
    with virtual_cuda(devices=2) as counts:
        yield counts
