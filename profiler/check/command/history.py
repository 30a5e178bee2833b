"""`check --history FILE` alone: what was checked before, and where it changed."""

from __future__ import annotations

import sys
from pathlib import Path


def show(path: Path) -> int:
    """Print the history in `path`; the exit code."""
    from profiler.check.history import read, trend
    from profiler.check.outputs.history import print_history

    print_history(trend(read(path)), stream=sys.stdout)
    return 0
