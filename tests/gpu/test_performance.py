"""Settings made true on a real GPU: torch takes them, and keeps a process to its share of the memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from reference_trainer.performance import PerformanceConfig, apply, memory_of

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, products.allow_tf32
    yield
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, products.allow_tf32 = before
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_share_of_the_memory(device: str) -> None:
    """Among a hundred processes 2% of the memory are too much for one; for one alone they are not."""
    total = memory_of(device).total
    assert total
    torch.cuda.empty_cache()
    apply(PerformanceConfig(max_memory=1), device, sharing=100)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(total // 50, dtype=torch.uint8, device=device)
    apply(PerformanceConfig(max_memory=1), device)
    assert torch.empty(total // 50, dtype=torch.uint8, device=device).is_cuda
    torch.cuda.empty_cache()
