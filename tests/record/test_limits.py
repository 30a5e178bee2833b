"""Limits of containers, of both versions of the kernel's control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.record.kernel import cores, cpu_limit, memory_limit, throttled_seconds


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "cgroup").mkdir()
    return tmp_path / "cgroup"


def member(root: Path, text: str) -> Path:
    path = root.parent / "self"
    path.write_text(text)
    return path


def test_version_2_takes_the_strictest_on_the_way_up(root: Path) -> None:
    write(root, "a/cpu.max", "150000 100000")
    write(root, "a/b/cpu.max", "max 100000")
    write(root, "a/memory.max", "max")
    write(root, "a/b/memory.max", "4294967296")
    membership = member(root, "0::/a/b\n")
    assert cpu_limit(root, membership) == 1.5
    assert memory_limit(root, membership) == 1 << 32


def test_throttled_time_of_all_groups_with_a_quota(root: Path) -> None:
    write(root, "a/cpu.max", "50000 100000")
    write(root, "a/cpu.stat", "usage_usec 5\nnr_throttled 3\nthrottled_usec 1500000")
    write(root, "cpu/b/cpu.cfs_quota_us", "20000")
    write(root, "cpu/b/cpu.cfs_period_us", "100000")
    write(root, "cpu/b/cpu.stat", "nr_periods 4\nthrottled_time 250000000")
    assert throttled_seconds(root, member(root, "0::/a\n")) == 1.5
    assert throttled_seconds(root, member(root, "2:cpu:/b\n")) == 0.25
    assert throttled_seconds(root, member(root, "0::/\n")) is None


def test_version_1(root: Path) -> None:
    write(root, "cpu,cpuacct/x/cpu.cfs_quota_us", "50000")
    write(root, "cpu,cpuacct/x/cpu.cfs_period_us", "100000")
    write(root, "cpu,cpuacct/cpu.cfs_quota_us", "-1")
    write(root, "memory/memory.limit_in_bytes", "9223372036854771712")  # what "no limit" looks like
    membership = member(root, "4:memory:/\n2:cpu,cpuacct:/x\n0::/\n")
    assert cpu_limit(root, membership) == 0.5
    assert memory_limit(root, membership) is None


def test_a_group_that_cannot_be_seen_from_inside_has_the_limit_of_the_top(root: Path) -> None:
    write(root, "cpu.max", "200000 100000")
    assert cpu_limit(root, member(root, "0::/docker/abc\n")) == 2.0


def test_no_groups(root: Path) -> None:
    membership = root / "missing"
    assert (cpu_limit(root, membership), memory_limit(root, membership)) == (None, None)
    assert cores() >= 1
