"""What both scripts say of themselves when their last step is done: a line of JSON, as a person's own clock would."""

from __future__ import annotations

import json
import os
import statistics
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

WARM_UP = 0.2
"""Share of the steps that is left out: allocators, caches and clocks settle."""

stamp = time.perf_counter


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
