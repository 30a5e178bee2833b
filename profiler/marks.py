"""Marks that a training program sets: steps, regions, counters, gauges, results and records of a device of its own.

    from profiler import marks
    marks.describe(device="cuda", step="chunk")
    marks.open_step()                      # earlier events belong to no step
    for chunk in chunks:
        with marks.region("tokenize"): ...
        marks.gauge("loss", loss)
        marks.step(tokens=3000)            # ends the step that began at the previous one

Without a recording each mark is one function call that returns at once. Recording is enabled by the environment that
`python -m profiler run` sets (PROFILER_RUN_DIR, PROFILER_LEVEL), never by the program. Level `light` records steps,
counters and gauges, but no regions. Only the standard library is imported, and no Python thread is started.
"""

from __future__ import annotations

import atexit
import os
from contextlib import AbstractContextManager
from typing import Any, Final

from profiler.agent.clocks import Region, now
from profiler.agent.recorder import Recorder, start

__all__ = [
    "Recorder",
    "count",
    "describe",
    "gauge",
    "now",
    "open_step",
    "recorder",
    "region",
    "result",
    "step",
    "worked",
]


class _NoRegion:
    """The region of a program that is not recorded."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


_NO_REGION: Final = _NoRegion()


_recorder: Recorder | None = None


def recorder() -> Recorder | None:
    """The recorder of this process, or None. A device may keep it."""
    return _recorder


def region(name: str) -> AbstractContextManager[None]:
    """A context manager for named host work: tokenize, data, h2d, log, checkpoint, ... Regions nest."""
    active = _recorder
    if active is None or not active.detailed:
        return _NO_REGION
    return Region(active, name)


def open_step() -> None:
    """Begin a step now: events since the last boundary belong to no step."""
    if _recorder is not None:
        _recorder.open_step()


def step(tokens: int = 0, warmup: bool = False) -> None:
    """End the current step and begin the next one."""
    if _recorder is not None:
        _recorder.step(tokens, warmup)


def worked() -> None:
    """Report a piece of work for the steps of another process, for example by a worker of a sweep.

    What this process has counted and gauged is written, and belongs to the step that the other process has open now. In
    a process with steps of its own it stays with those.
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


def result(name: str, value: Any, *, rtol: float = 1e-3, atol: float = 1e-6, margins: Any = None) -> None:
    """State a result that must be the same in another version of the program: `compare` holds one against the other.

    Each call adds to the sequence of results of that name, and `compare` takes as many as both runs have, so a call in
    each step compares runs of different lengths. Up to 4,096 values are stored, spread over all of them at random;
    with `margins` up to 65,536, and of integers a checksum of all. Calls are ignored once 65,536 values of a name are
    stored. Only while recording, a tensor on a GPU is copied to the host, which waits for the GPU.

    :param value: a number, a sequence of numbers (no iterator), a NumPy array or a torch tensor.
    :param rtol: relative difference that two floating-point numbers may have. Integers must be equal.
    :param atol: absolute difference that they may have in addition.
    :param margins: for each integer that is the index of the largest score, the gap to the second largest score. Such
        integers may differ where the gap is at most `atol` on both sides, because rounding decides there.
    """
    if _recorder is not None:
        _recorder.result(name, value, rtol=rtol, atol=atol, margins=margins)


def describe(**facts: Any) -> None:
    """State facts about this program: device, corpus, preset, step, ... (JSON values). Runs are compared by them."""
    if _recorder is not None:
        _recorder.facts.update(facts)
        _recorder.write_metadata()


def renew() -> None:
    """Use the recorder that this process has now, if any: called at import, in forked children and by `record`."""
    global _recorder
    _recorder = start()


def _finish() -> None:
    if _recorder is not None:
        _recorder.flush()


renew()
atexit.register(_finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=renew)
