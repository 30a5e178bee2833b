"""What a container allows of the machine: cores and memory, by the kernel's control groups, version 2 and 1."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")
_UNLIMITED: Final = 1 << 62
"""Version 1 writes a number about this large for no limit."""


def cores(pid: int = 0) -> int:
    """Cores on which `pid` (0: this process) may run."""
    try:
        return len(os.sched_getaffinity(pid))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def cpu_limit(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> float | None:
    """Cores' worth of CPU time that this process's groups allow, the strictest; None: no limit."""
    found = []
    for folder in _folders("cpu", root, membership):
        quota, _, period = (_text(folder / "cpu.max") or "max").partition(" ")
        if quota == "max":
            quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period):
            found.append(int(quota) / int(period))
    return min(found, default=None)


def memory_limit(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> int | None:
    """Bytes that this process's groups may hold, the strictest; None: no limit."""
    found = []
    for folder in _folders("memory", root, membership):
        text = _text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes")
        if text.isdecimal() and int(text) < _UNLIMITED:
            found.append(int(text))
    return min(found, default=None)


def _folders(controller: str, root: Path, membership: Path) -> Iterator[Path]:
    """The group's folder and those above it, of whichever version holds `controller`; a limit above holds too."""
    for line in _text(membership).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            top = root
        elif controller in controllers.split(","):
            top = root / controllers if (root / controllers).is_dir() else root / controller
        else:
            continue
        folder = top / path.lstrip("/")  # in a container's view it may lie outside: then only what is above it is there
        yield from (one for one in (folder, *folder.parents) if one == top or top in one.parents)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
