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
    requested: dict[str, Any] = {"emptied": 0}

    def limited(fraction: object, device: str | torch.device | int) -> None:
        """As picky as torch's own."""
        if not isinstance(fraction, float):
            raise TypeError("Invalid type for fraction argument, must be `float`")
        index = device if isinstance(device, int) else torch.device(device).index
        if index is None:
            raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
        requested.update(share=fraction, index=index)

    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limited)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)

    def emptied() -> None:
        requested["emptied"] += 1

    monkeypatch.setattr(torch.cuda, "empty_cache", emptied)
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, products.allow_tf32
    yield requested
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, products.allow_tf32 = before


def state() -> tuple[bool, ...]:
    cudnn = torch.backends.cudnn
    return cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


def test_on_a_gpu_every_switch_is_set_both_ways(switches: dict[str, Any]) -> None:
    apply(PerformanceConfig(cudnn_benchmark=True, tf32=True, max_memory=0.5), "cuda:1")
    assert state() == (True, False, True, True)
    assert (switches["share"], switches["index"]) == (0.5, 1)
    apply(PerformanceConfig(cudnn_deterministic=True, max_memory=1), "cuda")
    assert state() == (False, True, False, False)
    assert (switches["share"], switches["index"]) == (1.0, 3), "the GPU that is current"


def test_workers_divide_the_memory_of_a_gpu(switches: dict[str, Any]) -> None:
    apply(PerformanceConfig(max_memory=0.8), "cuda:0", sharing=4)
    assert switches["share"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    "values",
    [
        *({name: True} for name in ("tf32", "cudnn_benchmark", "cudnn_deterministic")),
        *({"empty_cache_frequency": 3}, {"precision": "fp16"}),
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
    item = torch.ones(2, 2)
    with autocast(PerformanceConfig()):
        assert (item @ item).dtype == torch.float32
    with autocast(PerformanceConfig(precision="bf16"), "cpu"):
        assert (item @ item).dtype == torch.bfloat16
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
