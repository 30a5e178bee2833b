"""Records what a training program marks: steps, regions, counters, gauges and results.

    from profiler import marks
    marks.describe(device="cuda", step="chunk")
    marks.open_step()                      # earlier events belong to no step
    for chunk in chunks:
        with marks.region("tokenize"): ...
        marks.gauge("loss", loss)
        marks.step(tokens=3000)            # ends the step that began at the previous one

Without a recording, a mark is one function call that returns at once. Only `python -m profiler run` enables recording,
by the environment variables PROFILER_RUN_DIR and PROFILER_LEVEL. Level `light` records steps, counters and gauges, but
no regions. This module imports only the standard library and starts no thread.
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
    """Stands for a region in a program that is not recorded."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


_NO_REGION: Final = _NoRegion()


_recorder: Recorder | None = None


def recorder() -> Recorder | None:
    """Return the recorder of this process, or None without a recording. A device may keep it."""
    return _recorder


def region(name: str) -> AbstractContextManager[None]:
    """Return a context manager that records named work of the host, such as tokenize, data, log or checkpoint.

    Regions may be nested. Level `light` records none.
    """
    active = _recorder
    if active is None or not active.detailed:
        return _NO_REGION
    return Region(active, name)


def open_step() -> None:
    """Begin a step now. Events since the last step belong to no step."""
    if _recorder is not None:
        _recorder.open_step()


def step(tokens: int = 0, warmup: bool = False) -> None:
    """End the current step and begin the next one.

    :param tokens: number of tokens of the step that ends, or of other units of work.
    :param warmup: whether the step that ends is a warm-up, which is not measured.
    """
    if _recorder is not None:
        _recorder.step(tokens, warmup)


def worked() -> None:
    """Report a piece of work to the steps of another process, such as the main process of a sweep.

    The counts and gauges of this process then belong to the current step of the other process. If this process has
    steps, they stay with its own steps.
    """
    if _recorder is not None:
        _recorder.flush_to_step()


def count(name: str, amount: float = 1) -> None:
    """Add `amount` to a counter of the current step."""
    if _recorder is not None:
        _recorder.count(name, float(amount))


def gauge(name: str, value: float) -> None:
    """Set a value of the current step, such as loss or accuracy."""
    if _recorder is not None:
        _recorder.gauges[name] = float(value)


def result(name: str, value: Any, *, rtol: float = 1e-3, atol: float = 1e-6, margins: Any = None) -> None:
    """Record a result that other versions of the program must reproduce. `compare` compares the results of two runs.

    Each call adds to the sequence of results of this name. `compare` uses as many as both runs have, so runs of
    different lengths can be compared. Up to 4,096 random values of a call are stored, or up to 65,536 with `margins`,
    and for integers a checksum of all. After 65,536 stored values of a name, further calls are ignored. While
    recording, a tensor on a GPU is copied to the host, which waits for the GPU.

    :param value: a number, a sequence of numbers (no iterator), a NumPy array or a torch tensor.
    :param rtol: allowed relative difference of two floating-point numbers. Integers must be equal.
    :param atol: allowed absolute difference, in addition to `rtol`.
    :param margins: for each integer that is the index of the largest score, the gap to the second largest score. Such
        integers may differ if the gap is at most `atol` on both sides, because then rounding decides.
    """
    if _recorder is not None:
        _recorder.result(name, value, rtol=rtol, atol=atol, margins=margins)


def describe(**facts: Any) -> None:
    """Record facts about this program as JSON values, such as device, corpus or preset.

    Runs with different facts may not be comparable.
    """
    if _recorder is not None:
        _recorder.facts.update(facts)
        _recorder.write_metadata()


def renew() -> None:
    """Use the present recorder of this process, if any. Called at import, in forked children and by `record`."""
    global _recorder
    _recorder = start()


def _finish() -> None:
    if _recorder is not None:
        _recorder.flush()


renew()
atexit.register(_finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=renew)
