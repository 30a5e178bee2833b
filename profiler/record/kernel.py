"""Tells what the kernel allows: to read the stacks of another process, and how many cores and how much memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from profiler.core.procfs import PROC, Folder, read_status
from profiler.core.terminal import called_as

_YAMA: Final = "sys/kernel/yama/ptrace_scope"
_BY_SCOPE: Final = {
    1: "which lets a program sample only what it started: attach as root (sudo), allow it until the next boot with: "
    f"sudo sysctl kernel.yama.ptrace_scope=0, or start the job by: {called_as()} run --level standard -- CMD",
    2: "with which only root may sample another program: attach as root (sudo)",
    3: "with which nobody may, until the next boot, sample another program",
}
"""For each restricting value of kernel.yama.ptrace_scope its effect, and a remedy if there is one."""


def ptrace_scope(proc: Folder = PROC) -> int:
    """Return the kernel's Yama setting, who may be traced: 0 the same user's processes, 1 descendants, 2 by root, 3
    nobody."""
    with suppress(OSError, ValueError):
        return int(Path(proc, _YAMA).read_text(encoding="ascii"))
    return 0


def remedy(proc: Folder = PROC) -> str:
    """Return the command that permits it to a recorder of this user."""
    scope = ptrace_scope(proc)
    if scope == 3:
        return "set kernel.yama.ptrace_scope=1 in /etc/sysctl.d and restart the machine (3 cannot be lowered)"
    if scope:
        return "sudo sysctl kernel.yama.ptrace_scope=0"
    return "start the container with: docker run --cap-add SYS_PTRACE ..."


def missing_permission(pid: int, proc: Folder = PROC) -> str:
    """Return one line about what is missing to sample the stacks of `pid` and how to grant it; '' when nothing is.

    Opening its memory is allowed to exactly those who may sample it, and touches nothing.
    """
    try:
        os.close(os.open(Path(proc, str(pid), "mem"), os.O_RDONLY))
    except PermissionError:
        return _explain(pid, proc)
    except OSError:
        return ""  # it has ended, or the system has no such file: py-spy will tell
    return ""


def _explain(pid: int, proc: Folder) -> str:
    owner, user = read_status(pid, "Uid", proc).split()[:1], os.geteuid()
    if user != 0 and owner and int(owner[0]) != user:
        return f"process {pid} belongs to another user ({_user_name(int(owner[0]))}): attach as that user, or as root"
    if user == 0:
        return (
            "root without the capability SYS_PTRACE, as containers have it: "
            "start the container with --cap-add=SYS_PTRACE, or attach from the host"
        )
    if (scope := ptrace_scope(proc)) in _BY_SCOPE:
        return f"kernel.yama.ptrace_scope is {scope}, {_BY_SCOPE[scope]}"
    return (
        f"ptrace of process {pid} is forbidden: attach as root (sudo), "
        "or give the container the capability SYS_PTRACE (--cap-add=SYS_PTRACE)"
    )


def _user_name(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"number {number}"


# ---------------------------------------------------------------- cores and memory of control groups

_ROOT: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")
_GOVERNOR: Final = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_UNLIMITED: Final = 1 << 62
"""Version 1 writes a number about this large for no limit."""


def cores(pid: int = 0) -> int:
    """Return the cores on which `pid` (0: this process) may run."""
    try:
        return len(os.sched_getaffinity(pid))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def cpu_limit(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> float | None:
    """Return the cores whose CPU time this process's groups allow: the strictest limit; None: no limit."""
    limits = []
    for folder in _folders("cpu", root, membership):
        quota, _, period = (_text(folder / "cpu.max") or "max").partition(" ")
        if quota == "max":
            quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period):
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def throttled_seconds(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> float | None:
    """Return the time that CPU quotas have cost this process's groups so far, summed over the cores; None: there is no
    quota."""
    if cpu_limit(root, membership) is None:
        return None
    seconds = 0.0
    for folder in _folders("cpu", root, membership):
        fields = dict(line.split()[:2] for line in _text(folder / "cpu.stat").splitlines() if " " in line)
        seconds += int(fields.get("throttled_usec", 0)) / 1e6 + int(fields.get("throttled_time", 0)) / 1e9
    return seconds


def memory_limit(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> int | None:
    """Return the bytes that this process's groups allow: the strictest limit; None: no limit."""
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
    """Yield the folder of this process's group and those above it, whose limits hold too, in either version."""
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
