"""What a training program imports to mark itself: regions, steps, counters, and a device's own records.

    from profiler import marks
    marks.describe(device="cuda", step="chunk")
    marks.open_step()                      # what came before belongs to no step
    for chunk in chunks:
        with marks.region("tokenize"): ...
        marks.gauge("loss", loss)
        marks.step(tokens=3000)            # closes the step that began at the boundary before

Near-free when nothing records: a function call that returns at once. Recording is switched on by the
environment that `python -m profiler run` sets (PROFILER_RUN_DIR, PROFILER_LEVEL), never by the program.
At level `light` regions and single calls are not recorded; steps, counters and gauges are.
Only the standard library is imported here, and no Python thread is started.
"""

from __future__ import annotations

import atexit
import os
from contextlib import AbstractContextManager
from typing import Any, Final

from profiler.agent.recorder import Recorder, Region, now, start

__all__ = ["Recorder", "count", "describe", "gauge", "now", "open_step", "recorder", "region", "step", "worked"]


class _Null:
    """The region of a program that nobody records."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


_NULL: Final = _Null()


_recorder: Recorder | None = None


def recorder() -> Recorder | None:
    """The recorder of this process, or None. A device reads it once and keeps it."""
    return _recorder


def region(name: str) -> AbstractContextManager[None]:
    """A named stretch of host work: tokenize, data, h2d, log, checkpoint, ... Regions nest."""
    active = _recorder
    if active is None or not active.detailed:
        return _NULL
    return Region(active, name)


def open_step() -> None:
    """Begin a step now: what happened since the last boundary belongs to no step."""
    if _recorder is not None:
        _recorder.open_step()


def step(tokens: int = 0, warmup: bool = False) -> None:
    """Close the current step and begin the next. Everything since the boundary before is in it."""
    if _recorder is not None:
        _recorder.step(tokens, warmup)


def worked() -> None:
    """Of a process that works for the steps of another (a worker of a sweep): a piece of that work is done.

    What was counted and gauged meanwhile is written, and belongs to the step that the other one has open now. In a
    process that has steps of its own it stays with those.
    """
    if _recorder is not None:
        _recorder.flush_to_step()


def count(name: str, amount: float = 1) -> None:
    """Add to a counter of the current step."""
    if _recorder is not None:
        _recorder.count(name, float(amount))


def gauge(name: str, value: float) -> None:
    """Set a value of the current step: loss, accuracy, ..."""
    if _recorder is not None:
        _recorder.gauges[name] = float(value)


def describe(**facts: Any) -> None:
    """Say what this program is: device, corpus, preset, step, ... (JSON values). Compared before any ratio."""
    if _recorder is not None:
        _recorder.facts.update(facts)
        _recorder.write_metadata()


def renew() -> None:
    """Write to the recorder that this process has now, if it has one: at import, in forked children, in `record`."""
    global _recorder
    _recorder = start()


def _finish() -> None:
    if _recorder is not None:
        _recorder.flush()


renew()
atexit.register(_finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=renew)
