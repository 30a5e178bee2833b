"""What both scripts say of themselves when their last step is done: a line of JSON, as a person's own clock would."""

from __future__ import annotations

import json
import mmap
import os
import statistics
import struct
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

WARM_UP = 0.2
"""Share of the steps that is left out: allocators, caches and clocks settle."""

stamp = time.perf_counter
_MOST_STAMPS = 1 << 20


class _Shared:
    """Stamps that another process may read at any time (0.2 µs each)."""

    def __init__(self, path: str) -> None:
        with open(path, "w+b") as file:
            file.truncate(8 * _MOST_STAMPS)
            self._memory = mmap.mmap(file.fileno(), 0)
        self._count = 0

    def append(self, value: float) -> None:
        _PACK(self._memory, 8 * self._count, value)
        self._count += 1


_PACK = struct.Struct("d").pack_into


def started() -> Any:
    """What takes the time before the first step and after each, by `append`: a list, or the file OVERHEAD_STAMPS."""
    stamps = _Shared(os.environ["OVERHEAD_STAMPS"]) if "OVERHEAD_STAMPS" in os.environ else []
    stamps.append(stamp())
    return stamps


def watch() -> None:
    """Where TraceML is on: the line that it needs at the beginning of a plain script."""
    if "OVERHEAD_TRACEML" in os.environ:
        import traceml_ai

        traceml_ai.init(mode="auto")


def step_of(model: Any) -> AbstractContextManager[Any]:
    """Where TraceML is on: what it needs around each step; nothing for the others (0.2 µs)."""
    if "OVERHEAD_TRACEML" in os.environ:
        import traceml_ai

        return traceml_ai.trace_step(model)
    return _NOTHING


_NOTHING = nullcontext()


def finished(stamps: list[float]) -> None:
    """Write it to the file that OVERHEAD_RESULT names, or print it.

    :param stamps: the time before the first step and after each.
    """
    first = int(WARM_UP * (len(stamps) - 1))
    steps = [late - early for early, late in zip(stamps[first:-1], stamps[first + 1 :], strict=True)]
    result = {
        "steps": len(steps),
        "mean_s": statistics.fmean(steps),
        "median_s": statistics.median(steps),
        "total_s": stamps[-1] - stamps[first],
        "first_step_at": stamps[0],
        "last_step_at": stamps[-1],
    }
    text = json.dumps(result)
    if "OVERHEAD_RESULT" in os.environ:
        Path(os.environ["OVERHEAD_RESULT"]).write_text(text)
    else:
        print(text)
