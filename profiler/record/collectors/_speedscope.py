"""py-spy's speedscope file -> samples of the GIL's holder, laid over the window in which they were taken.

Only this format tells how often: the chrome trace leaves no mark where nobody held the GIL, so that what it shows as
one span may be two samples with a pause between. Checked against py-spy 0.4.3: a profile for each thread, its samples
in order of time but without times, so they are spread evenly over the window; how many there are is exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from profiler.record.collectors._chrometrace import Span
from profiler.run.store import Frame

_THREAD: Final = re.compile(r"thread \((\d+)\)")


def held(document: Mapping[str, Any], pid: int, begin: int, observed: int, ticks: int) -> list[Span]:
    """A row for each sample, as long as the time between two: together they are the time in which the GIL was held.

    :param begin: ns at which the window began; `observed`: ns that it lasted.
    :param ticks: how often py-spy looked; with a holder or without one.
    """
    period = observed // max(1, ticks)
    frames = [(frame["file"] or "", int(frame["line"] or 0), frame["name"]) for frame in document["shared"]["frames"]]
    rows: list[Span] = []
    for tid, samples in _threads(document, frames):
        for number, stack in enumerate(samples):
            middle = begin + (2 * number + 1) * observed // (2 * len(samples))
            rows.append(Span(middle - period // 2, middle - period // 2 + period, pid, tid, stack, 1))
    return sorted(rows)


def _threads(document: Mapping[str, Any], frames: Sequence[Frame]) -> Iterator[tuple[int, list[tuple[Frame, ...]]]]:
    """Thread and its stacks without the frame that only names it; a thread without a frame of Python is left out."""
    for profile in document["profiles"]:
        stacks = [tuple(frames[index] for index in sample) for sample in profile["samples"] if len(sample) > 1]
        thread = _THREAD.match(stacks[0][0][2]) if stacks else None
        if thread:
            yield int(thread[1]), [stack[1:] for stack in stacks]
