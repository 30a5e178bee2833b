"""Whether this process may sample the stacks of another; if not, what is missing and how it is granted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from profiler.core.procfs import read_status

_PROC: Final = Path("/proc")
_YAMA: Final = Path("sys/kernel/yama/ptrace_scope")


def missing_permission(pid: int, proc: Path = _PROC) -> str:
    """In one line what is missing to sample the stacks of `pid` and how to grant it; empty: nothing is.

    Opening its memory is allowed to exactly those who may sample it, and touches nothing.
    """
    try:
        os.close(os.open(proc / str(pid) / "mem", os.O_RDONLY))
    except PermissionError:
        return _why(pid, proc)
    except OSError:
        return ""  # it is gone, or the system has no such file: py-spy will say
    return ""


def _why(pid: int, proc: Path) -> str:
    owner, own = read_status(pid, "Uid", proc).split()[:1], str(os.geteuid())
    if own != "0" and owner and owner[0] != own:
        return f"process {pid} belongs to another user ({_user(int(owner[0]))}): attach as that user, or as root"
    if own == "0":
        return (
            "root without the capability SYS_PTRACE, as containers have it: "
            "start the container with --cap-add=SYS_PTRACE, or attach from the host"
        )
    scope = _text(proc / _YAMA)
    if scope == "1":
        return (
            "kernel.yama.ptrace_scope is 1, which lets a program sample only what it started: attach as root (sudo), "
            "allow it until the next boot with: sudo sysctl kernel.yama.ptrace_scope=0, "
            "or start the job by: python -m profiler run --level standard -- CMD"
        )
    if scope in ("2", "3"):
        who = "only root may" if scope == "2" else "nobody may, until the next boot"
        return f"kernel.yama.ptrace_scope is {scope}, with which {who} sample another program" + (
            ": attach as root (sudo)" if scope == "2" else ""
        )
    return (
        f"ptrace of process {pid} is forbidden: attach as root (sudo), "
        "or give the container the capability SYS_PTRACE (--cap-add=SYS_PTRACE)"
    )


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"number {number}"


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
