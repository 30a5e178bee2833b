"""Tells whether this process may read the stacks of another (ptrace); if not, what is missing to grant it."""

from __future__ import annotations

import os
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
    """The kernel's Yama setting, who may be traced: 0 the same user's processes, 1 descendants, 2 by root, 3 nobody."""
    with suppress(OSError, ValueError):
        return int(Path(proc, _YAMA).read_text(encoding="ascii"))
    return 0


def remedy(proc: Folder = PROC) -> str:
    """The command that permits it to a recorder of this user."""
    scope = ptrace_scope(proc)
    if scope == 3:
        return "set kernel.yama.ptrace_scope=1 in /etc/sysctl.d and restart the machine (3 cannot be lowered)"
    if scope:
        return "sudo sysctl kernel.yama.ptrace_scope=0"
    return "start the container with: docker run --cap-add SYS_PTRACE ..."


def missing_permission(pid: int, proc: Folder = PROC) -> str:
    """One line about what is missing to sample the stacks of `pid` and how to grant it; '' when nothing is.

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
