"""Memory as the kernel and torch tell it; what they do not tell is None with a reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from reference_trainer.performance import get_memory_stats, get_optimal_batch_size, memory_of
from reference_trainer.performance.memory import reset_peak

MB = 1 << 20
MEMINFO = "MemTotal:       16384 kB\nMemFree:  1 kB\nMemAvailable:    8192 kB\nHugePages_Total:       0\n"
STATUS = "Name:\tpython\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\n"
linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")


def machine(tmp_path: Path, groups: str = "", **files: str) -> Path:
    """A /proc below `tmp_path`, and files of control groups: a__b is a/b below /sys/fs/cgroup."""
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(MEMINFO)
    (proc / "self" / "status").write_text(STATUS)
    (proc / "self" / "cgroup").write_text(groups)
    for name, text in files.items():
        *folders, last = name.split("__")
        path = tmp_path.joinpath("sys", "fs", "cgroup", *folders, last.replace("_DOT_", "."))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return proc


def test_of_a_machine_without_limits(tmp_path: Path) -> None:
    stats = memory_of("cpu", proc=machine(tmp_path))
    assert (stats.total, stats.free, stats.allocated, stats.peak) == (16 * MB, 8 * MB, MB, 2 * MB)
    assert stats.reserved is None
    assert set(stats.reasons) == {"reserved"}


def test_a_container_of_version_2(tmp_path: Path) -> None:
    files = {
        "a__memory_DOT_max": f"{4 * MB}\n",
        "a__memory_DOT_current": f"{3 * MB}\n",
        "a__memory_DOT_stat": f"anon 5\ninactive_file {MB}\n",
        "a__b__memory_DOT_max": "max\n",
    }
    stats = memory_of("cpu", proc=machine(tmp_path, "0::/a/b\n", **files))
    assert (stats.total, stats.free) == (4 * MB, 2 * MB), "files that may be dropped are not in use"


def test_a_container_of_version_1_whose_folder_is_not_seen_from_inside(tmp_path: Path) -> None:
    files = {
        "memory__memory_DOT_limit_in_bytes": f"{4 * MB}\n",
        "memory__memory_DOT_usage_in_bytes": f"{5 * MB}\n",
    }
    stats = memory_of("cpu", proc=machine(tmp_path, "4:memory:/x/y\n3:cpu:/\n0::/\n", **files))
    assert (stats.total, stats.free) == (4 * MB, 0)


def test_a_system_without_these_files(tmp_path: Path) -> None:
    stats = memory_of("cpu", proc=tmp_path)
    assert (stats.total, stats.free, stats.allocated, stats.peak) == (None, None, None, None)
    assert set(stats.reasons) == {"total", "free", "allocated", "reserved", "peak"}


@linux
def test_of_this_process() -> None:
    before = memory_of()
    blocked = np.ones(128 * MB, np.uint8)
    during = memory_of()
    assert during.allocated - before.allocated > 0.9 * blocked.nbytes
    assert during.peak >= during.allocated - MB
    assert 0 < during.free < during.total
    del blocked
    if not reset_peak():
        pytest.skip("this system does not let a process reset its peak")
    assert during.peak - memory_of().peak > 64 * MB


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_here() -> None:
    stats = memory_of("cuda:0")
    assert (stats.total, stats.free, stats.allocated, stats.reserved, stats.peak) == (None,) * 5
    assert all(stats.reasons.values())
    assert len(stats.reasons) == 5


def test_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("mem_get_info", (3, 10)),
        ("memory_allocated", 2),
        ("memory_reserved", 4),
        ("max_memory_allocated", 5),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    stats = memory_of(torch.device("cuda", 0))
    assert (stats.device, stats.total, stats.free) == ("cuda:0", 10, 3)
    assert (stats.allocated, stats.reserved, stats.peak, stats.reasons) == (2, 4, 5, {})
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 3 << 29)
    assert get_memory_stats("cuda:0")["allocated_gb"] == 1.5


def test_gigabytes_of_a_cpu_which_keeps_none_in_reserve() -> None:
    stats = get_memory_stats("cpu")
    assert stats.keys() == {"total_gb", "free_gb", "allocated_gb", "reserved_gb", "peak_gb"}
    assert stats["reserved_gb"] is None


def test_the_batch_size_by_the_model_of_the_case() -> None:
    """0.9 of 16 GB holds 294 items of 50 MB."""
    assert [get_optimal_batch_size(n, gpu_memory_gb=16) for n in (8, 294, 1000)] == [294, 294, 1000]
    assert get_optimal_batch_size(8) == 294
    assert get_optimal_batch_size(8, 4.5) == 82
