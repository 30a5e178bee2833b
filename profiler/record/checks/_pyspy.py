"""Tries py-spy on a Python that stands still: whether it may read another process's stacks here."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Final

from profiler.record.checks._child import ChildError, answer_of, standing

_SECONDS: Final = 8.0
YAMA: Final = Path("/proc/sys/kernel/yama/ptrace_scope")
_REFUSED: Final = re.compile(r"permission denied|not permitted", re.IGNORECASE)


def program() -> str | None:
    """py-spy beside this Python, or on the path."""
    beside = shutil.which("py-spy", path=os.pathsep.join((str(Path(sys.executable).parent), os.defpath)))
    return beside or shutil.which("py-spy")


def refusal(pyspy: str, python: str, *, allows: bool) -> str:
    """Why py-spy cannot read a Python of ours; empty when it can.

    :param allows: the Python lets us trace it, as recorded programs do; else it is as any other of the same user.
    """
    with standing(python, allows=allows) as pid:
        try:
            said = answer_of([pyspy, "dump", "--pid", str(pid)], _SECONDS)
        except ChildError as error:
            return "ptrace is forbidden here" if _REFUSED.search(str(error)) else f"py-spy: {error}"
    return "" if "Thread" in said else "py-spy saw no thread of a Python that runs"


def scope() -> int:
    """Of the kernel's Yama: who may be traced: 0 the same user's processes, 1 descendants, 2 by root, 3 none."""
    try:
        return int(YAMA.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def permit() -> str:
    """What would permit it, in one command."""
    if scope() == 3:
        return "set kernel.yama.ptrace_scope=1 in /etc/sysctl.d and restart the machine (3 cannot be lowered)"
    if scope():
        return "sudo sysctl kernel.yama.ptrace_scope=0"
    return "start the container with: docker run --cap-add SYS_PTRACE ..."
