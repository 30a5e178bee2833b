"""Torch's switches follow the settings; on a CPU what means nothing there is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig, apply, autocast, emptying


@pytest.fixture
def switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Torch's switches as they are, put back afterwards; and what was asked of the GPU that is not here."""
    asked: dict[str, Any] = {"emptied": 0}
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: asked.update(share=share, device=device)
    )

    def emptied() -> None:
        asked["emptied"] += 1

    monkeypatch.setattr(torch.cuda, "empty_cache", emptied)
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, products.allow_tf32
    yield asked
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, products.allow_tf32 = before


def state() -> tuple[bool, ...]:
    cudnn = torch.backends.cudnn
    return cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


def test_on_a_gpu_every_switch_is_set_both_ways(switches: dict[str, Any]) -> None:
    apply(PerformanceConfig(cudnn_benchmark=True, tf32=True, max_memory=0.5), "cuda:1")
    assert state() == (True, False, True, True)
    assert (switches["share"], switches["device"]) == (0.5, torch.device("cuda:1"))
    apply(PerformanceConfig(cudnn_deterministic=True), "cuda")
    assert state() == (False, True, False, False)


@pytest.mark.parametrize(
    "values",
    [
        {"tf32": True},
        {"cudnn_benchmark": True},
        {"cudnn_deterministic": True},
        {"empty_cache_frequency": 3},
        {"precision": "fp16"},
    ],
)
def test_on_a_cpu_it_is_refused(switches: dict[str, Any], values: dict[str, Any]) -> None:
    before = state()
    (name,) = values
    with pytest.raises(TrainerError, match=f"performance setting {name} means nothing here: .*; leave it out"):
        apply(PerformanceConfig(**values), "cpu")
    assert state() == before


def test_on_a_cpu_the_rest_is_let_through(switches: dict[str, Any]) -> None:
    apply(PerformanceConfig(max_load=0.5, max_memory=0.5, num_devices=1, precision="bf16"))
    assert "share" not in switches


def test_precision() -> None:
    one = torch.ones(2, 2)
    with autocast(PerformanceConfig()):
        assert (one @ one).dtype == torch.float32
    with autocast(PerformanceConfig(precision="bf16"), "cpu"):
        assert (one @ one).dtype == torch.bfloat16
    with pytest.raises(TrainerError, match="fp16 needs a GPU"):
        autocast(PerformanceConfig(precision="fp16"), "cpu")


def test_memory_is_given_back_every_so_many_jobs(switches: dict[str, Any]) -> None:
    after = emptying(PerformanceConfig(empty_cache_frequency=3), "cuda:0")
    counts = []
    for _ in range(7):
        after()
        counts.append(switches["emptied"])
    assert counts == [0, 0, 1, 1, 1, 2, 2]
    for never in (emptying(PerformanceConfig(), "cuda"), emptying(PerformanceConfig(empty_cache_frequency=1), "cpu")):
        never()
    assert switches["emptied"] == 2
