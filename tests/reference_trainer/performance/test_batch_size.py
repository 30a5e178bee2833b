"""Sizes are found by trying: on a made-up clock and memory, and once on real work."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig, batch_size, get_optimal_batch_size, probe_batch_sizes
from reference_trainer.performance.batch_size import out_of_memory
from reference_trainer.performance.memory import MemoryStats


class Work:
    """A batch takes `seconds(size)` of a clock that stands still otherwise, and `memory(size)` bytes of a device."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        seconds: Callable[[int], float],
        memory: Callable[[int], int] = lambda size: 0,
        total: int = 10**9,
        largest: float = math.inf,
        error: type[Exception] = torch.OutOfMemoryError,
    ) -> None:
        self.sizes: list[int] = []
        self._now = 0.0
        self._peak = 0
        self._most = largest
        self._error = error
        self._seconds, self._memory, self._total = seconds, memory, total
        monkeypatch.setattr(batch_size.time, "perf_counter", lambda: self._now)
        monkeypatch.setattr(batch_size, "get_memory_stats", self._stats)
        monkeypatch.setattr(batch_size, "reset_peak", lambda device: True)

    def __call__(self, size: int) -> None:
        self.sizes.append(size)
        if size > self._most:
            raise self._error("out of memory")
        self._now += self._seconds(size)
        self._peak = self._memory(size)

    def _stats(self, device: str) -> MemoryStats:
        return MemoryStats(device, total=self._total, free=self._total, allocated=0, peak=self._peak)


def test_work_with_a_fixed_cost_is_best_done_in_large_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch, lambda size: 0.010 + 0.0001 * size)
    assert get_optimal_batch_size(work, largest=4096) == 2048, "19 in 20 of what the largest does"
    assert max(work.sizes) == 4096


def test_work_without_one_needs_no_batch_and_large_ones_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch, lambda size: 0.001 * size)
    assert get_optimal_batch_size(work, largest=1 << 20) == 1
    assert max(work.sizes) <= 8
    work = Work(monkeypatch, lambda size: 1e-3)
    assert get_optimal_batch_size(work, largest=100) == max(work.sizes) == 100


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError])
def test_where_memory_runs_out_it_backs_off(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    work = Work(monkeypatch, lambda size: 1e-3, largest=700, error=error)
    result = get_optimal_batch_size(work, largest=1 << 20)
    assert 700 * 7 / 8 <= result <= 700, work.sizes
    assert sum(size > 700 for size in work.sizes) <= 4, "each failure takes a device's time"


def test_the_share_of_memory_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    for share, largest in ((0.5, 500), (1.0, 1000)):
        work = Work(monkeypatch, lambda size: 1e-3, memory=lambda size: size * 1000, total=10**6)
        result = get_optimal_batch_size(work, largest=1 << 20, config=PerformanceConfig(max_memory=share))
        assert largest * 7 / 8 <= result <= largest
        assert max(work.sizes) <= largest, "on a CPU what would be too much is not even tried"


def test_each_size_says_why_it_did_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    probes = probe_batch_sizes(Work(monkeypatch, lambda size: 1e-3, largest=3), largest=8)
    assert [(probe.size, probe.per_s is None) for probe in probes] == [(1, False), (2, False), (4, True), (3, False)]
    assert [probe.why for probe in probes] == ["", "", "out of memory", ""]
    assert probes[1].per_s == pytest.approx(2000)


def test_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrainerError, match="not even a batch of 1 fits device cpu: out of memory"):
        get_optimal_batch_size(Work(monkeypatch, lambda size: 1e-3, largest=0), largest=8)
    with pytest.raises(TrainerError, match="at most 0, it must be at least 1"):
        get_optimal_batch_size(Work(monkeypatch, lambda size: 1e-3), largest=0)


def test_other_errors_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError):
        get_optimal_batch_size(Work(monkeypatch, lambda size: 1e-3, largest=4, error=KeyError), largest=8)


def test_errors_that_mean_out_of_memory() -> None:
    assert out_of_memory(MemoryError())
    assert out_of_memory(torch.OutOfMemoryError())
    assert not out_of_memory(RuntimeError("shapes do not fit"))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert out_of_memory(caught.value), caught.value


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_real_memory_is_measured() -> None:
    [probe] = probe_batch_sizes(lambda size: np.ones((size, 16 << 20), np.float32).sum(), largest=1)
    assert probe.memory == pytest.approx(64 << 20, rel=0.3)
