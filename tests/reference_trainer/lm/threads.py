"""The threads of this process, those of libraries too."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def all_threads() -> set[str]:
    """Their numbers."""
    return {task.name for task in Path("/proc/self/task").iterdir()}


def eventually(holds: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether it holds within so many seconds: a thread that was waited for may be listed a moment longer."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.001)
    return True
