"""Reads how many cores and how much memory a process may use, from the kernel's control groups (versions 1, 2)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")
_GOVERNOR: Final = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_UNLIMITED: Final = 1 << 62
"""Version 1 writes a number about this large for no limit."""


def cores(pid: int = 0) -> int:
    """Cores on which `pid` (0: this process) may run."""
    try:
        return len(os.sched_getaffinity(pid))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def cpu_limit(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> float | None:
    """Cores whose CPU time this process's groups allow: the strictest limit; None: no limit."""
    limits = []
    for folder in _folders("cpu", root, membership):
        quota, _, period = (_text(folder / "cpu.max") or "max").partition(" ")
        if quota == "max":
            quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period):
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def throttled_seconds(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> float | None:
    """Time that CPU quotas have cost this process's groups so far, summed over the cores; None: there is no quota."""
    if cpu_limit(root, membership) is None:
        return None
    seconds = 0.0
    for folder in _folders("cpu", root, membership):
        fields = dict(line.split()[:2] for line in _text(folder / "cpu.stat").splitlines() if " " in line)
        seconds += int(fields.get("throttled_usec", 0)) / 1e6 + int(fields.get("throttled_time", 0)) / 1e9
    return seconds


def memory_limit(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> int | None:
    """Bytes that this process's groups allow: the strictest limit; None: no limit."""
    limits = []
    for folder in _folders("memory", root, membership):
        text = _text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes")
        if text.isdecimal() and int(text) < _UNLIMITED:
            limits.append(int(text))
    return min(limits, default=None)


def governor() -> str:
    """Return how the kernel sets the CPU's frequency, such as `performance`; '' where it does not show it."""
    return _text(_GOVERNOR)


def _folders(controller: str, root: Path, membership: Path) -> Iterator[Path]:
    """The folder of this process's group and those above it, whose limits hold too, in either version."""
    for line in _text(membership).splitlines():
        number, _, tail = line.partition(":")
        controllers, _, path = tail.partition(":")
        if number == "0":
            top = root
        elif controller in controllers.split(","):
            top = root / controllers if (root / controllers).is_dir() else root / controller
        else:
            continue
        folder = top / path.lstrip("/")  # may not exist in a container's view: then those above it do
        yield from (above for above in (folder, *folder.parents) if above == top or top in above.parents)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
